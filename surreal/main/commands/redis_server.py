"""`surreal redis`: a Redis server for runs of several machines, in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from surreal.config.schema.fields import parse_size
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.errors import ConfigError
from surreal.main.process.interrupts import set_at_signals


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
    server.serve(stop, on_ready)
