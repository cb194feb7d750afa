"""`surreal redis`: a Redis server for runs of several machines, in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from surreal.config.schema.fields import parse_size
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.errors import ConfigError
from surreal.main.commands.redis_health import serve_and_tell
from surreal.main.process.ending.interrupts import set_at_signals


def serve(
    *,
    bind: str,
    port: int,
    password: str | None,
    maxmemory: str,
    appendonly: Path | None,
    on_ready: Callable[[EmbeddedRedis], None],
) -> None:
    """Serve until a signal comes.

    Args:
        bind: address to listen on; another than this machine's own needs a password.
        port: TCP port, 0 for a free one.
        password: of the default user.
        maxmemory: bound of its memory, "2gb"; agents wait when the replay fills its share.
        appendonly: folder for an append-only file; None keeps data in memory.
        on_ready: called when it answers.

    Raises:
        ConfigError: a setting is out of range.
        RedisUnavailableError: it does not start, or ends by itself.
    """
    try:
        size = parse_size(maxmemory)
    except ValueError as error:
        raise ConfigError(f"--maxmemory is {maxmemory!r}: {error}", key="--maxmemory") from error
    try:
        server = EmbeddedRedis(
            maxmemory_bytes=int(str(size)), bind=bind, port=port, password=password, appendonly_dir=appendonly
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    stop = threading.Event()
    set_at_signals(stop)
    serve_and_tell(server, stop, on_ready)


def address_for_others(address: str, bind: str) -> str:
    """The address of a server as other machines can use it, but for the password, which is not shown.

    Args:
        address: for this machine.
        bind: where the server listens; all addresses of this machine are shown as the one that reaches others.
    """
    shown = RedisClient(address).address
    if bind not in ("0.0.0.0", "::", "*"):  # noqa: S104
        return shown
    host = _own_address(socket.AF_INET6 if bind == "::" else socket.AF_INET)
    host = f"[{host}]" if ":" in host else host
    return re.sub(r"(@|//)(127\.0\.0\.1|\[::1\])(?=:\d+$)", lambda found: f"{found[1]}{host}", shown)


def _own_address(family: socket.AddressFamily) -> str:
    """The address that this machine sends from to others; its name if it has no way to them."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: to connect such a socket only chooses the way out. The addresses are for documentation.
            probe.connect(("2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()
