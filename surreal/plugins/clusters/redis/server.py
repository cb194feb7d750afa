"""Redis servers for runs on several machines, in the foreground, until Ctrl-C or SIGTERM: `surreal redis`, and a job's.

The password of a job's server is new at each start, and is only in the run folder's `redis.address`, which only its
owner can read. `surreal status` and `surreal top` find it there, from any node that has the folder.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from surreal.base.errors import ConfigError, StoppedError
from surreal.base.system.files import read_secret
from surreal.base.system.health import HealthFile, Vitals, health_path
from surreal.base.system.probe import ENDING, STARTING, WORKING
from surreal.config.schema.fields import parse_size
from surreal.distributed.connection.address import parse_address
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.connection.rights import ADMINISTRATOR
from surreal.distributed.server.access import SELECTORS_VERSION, ServerAccess, ServerTls, password_in, write_users
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.files import server_version
from surreal.distributed.server.owners import Keeper
from surreal.plugins.clusters.options import AccessOptions
from surreal.plugins.clusters.redis.certificates import make_certificates
from surreal.plugins.clusters.redis.node_local import NodeLocal
from surreal.run.process.interrupts import stop_at_signals
from surreal.run.process.run_folder import RunFolder

_EVERYWHERE = ("0.0.0.0", "::", "*")  # noqa: S104


def answers(address: str) -> bool:
    """Whether a server answers; an error counts as an answer, such as a missing password or a full disk (MISCONF)."""
    with RedisClient(address) as client:
        try:
            client.redis.ping()
        except (AuthenticationError, BusyLoadingError, ResponseError):
            return True
        except RedisError:
            return False
        return True


def serve(
    *,
    bind: str,
    port: int,
    access: ServerAccess,
    maxmemory: str,
    appendonly: Path | None,
    drain_s: float = 0.0,
    on_ready: Callable[[EmbeddedRedis], None],
) -> None:
    """Serve until a signal comes, and write a health file if `$SURREAL_HEALTH` names one. An address that other
    machines reach needs a password or users; port 0 is a free one. Without the folder `appendonly`, data stay in
    memory. Clients have `drain_s` to end after the signal.

    Raises:
        ConfigError: a setting is out of range.
        RedisUnavailableError: it does not start, or it ends by itself.
    """
    try:
        size = parse_size(maxmemory)
    except ValueError as error:
        raise ConfigError(f"--maxmemory is {maxmemory!r}: {error}", key="--maxmemory") from error
    try:
        server = EmbeddedRedis(
            maxmemory_bytes=int(str(size)),
            bind=bind,
            port=port,
            access=access,
            appendonly_dir=appendonly,
            forwards_log=True,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    stop, address = stop_at_signals(), ""

    def begin(server: EmbeddedRedis) -> None:  # it has loaded its data
        nonlocal address
        address = server.socket_address
        on_ready(server)

    def look() -> Vitals:
        if stop.is_set() or not address:
            return Vitals(ENDING if stop.is_set() else STARTING)
        # Not through the port: this process may not trust its certificate, which may be for another name.
        return Vitals(WORKING, hangs_in="" if answers(address) else "redis-server does not answer")

    with HealthFile("redis", look, health_path(os.environ)):
        server.serve(stop, begin, drain_s=drain_s)


def prepare_access(options: AccessOptions, bind: str, say: Callable[[str], object]) -> ServerAccess:
    """Make missing files of users and certificates; `say` shows a sentence for each, `bind` is the server's address."""
    try:
        users = _prepare_users(options, say)
        tls = _prepare_tls(options, bind, say) if options.uses_tls or options.certificate else None
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from error
    return replace(users, tls=tls)


def _prepare_users(options: AccessOptions, say: Callable[[str], object]) -> ServerAccess:
    password = options.password
    if options.password_file is not None:
        is_new = not options.password_file.exists()
        password = password_in(options.password_file, "--password-file")
        if is_new:
            say(f"wrote a new password to {options.password_file}; other machines need a copy of this file")
    if options.acl_file is None:
        if options.runs:
            raise ConfigError("--run is for the users of --acl; name a file for them", key="--run")
        return ServerAccess(password)
    if password:
        raise ConfigError(
            "a password is for a server without users; with --acl each user has its own, in --secrets", key="--acl"
        )
    runs = [check_name(run, "run id") for run in options.runs or ()]
    version = server_version()
    if added := write_users(options.acl_file, options.secrets, runs, version):
        say(f"wrote users to {options.acl_file}: {', '.join(added)}; their passwords are in {options.secrets}")
    if version < SELECTORS_VERSION:
        say(
            f"warning: Redis {'.'.join(map(str, version))} gives a user all of its commands on all of its keys, so an "
            "agent's could overwrite parameters; Redis 7 can tell them apart"
        )
    path = options.secrets / ADMINISTRATOR
    own = read_secret(path, "--secrets") if path.exists() else None
    return ServerAccess(own, ADMINISTRATOR, options.acl_file)


def _prepare_tls(options: AccessOptions, bind: str, say: Callable[[str], object]) -> ServerTls:
    if options.certificate is None:
        if options.key is not None or options.authority is not None:
            raise ConfigError("--tls-key and --tls-ca belong to --tls-cert, which is missing", key="--tls-cert")
        hosts = [bind] if bind not in _EVERYWHERE else []
        own = {socket.gethostname(), *(_own_address(family) for family in (socket.AF_INET, socket.AF_INET6))}
        made = make_certificates(options.secrets, [*hosts, *sorted(own)])
        say(f"certificates are in {options.secrets}: clients trust {made.authority}")
        return ServerTls(
            made.server, made.server_key, made.authority, options.needs_clients, made.client, made.client_key
        )
    for name, path in (
        ("--tls-cert", options.certificate),
        ("--tls-key", options.key),
        ("--tls-ca", options.authority),
    ):
        if path is not None and not path.is_file():
            raise ConfigError(f"{name} is {path}, which is not a file", key=name)
    if options.needs_clients and options.authority is None:
        raise ConfigError("--client-certificates needs the authority that signs them: --tls-ca", key="--tls-ca")
    return ServerTls(options.certificate, options.key or options.certificate, options.authority, options.needs_clients)


def address_for_others(address: str, bind: str) -> str:
    """Return a server's address for other machines, without its password; a wildcard becomes this machine's address."""
    shown = parse_address(address).shown.partition("?")[0].replace(f"{ADMINISTRATOR}:***@", "")
    if bind not in _EVERYWHERE:
        return shown
    host = _own_address(socket.AF_INET6 if bind == "::" else socket.AF_INET)
    host = f"[{host}]" if ":" in host else host
    return re.sub(r"(@|//)(127\.0\.0\.1|\[::1\])(?=:\d+$)", lambda found: f"{found[1]}{host}", shown)


def _own_address(family: socket.AddressFamily) -> str:
    """Find the address from which this machine reaches others; its name if there is no route."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket only chooses a route, nothing is sent. The addresses are for documentation.
            probe.connect(("2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


logger = logging.getLogger(__name__)

_ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - it has a password
_PASSWORD_BYTES = 24
_WATCH_INTERVAL_S = 0.2
_RESTART_LIMIT = 5


def serve_job(
    run: str, run_dir: Path, *, maxmemory: str, keeps_experience: bool, interface: str | None, disk: Path | None = None
) -> None:
    """Serve until a signal comes; a server that dies is restarted at the same address.

    If it keeps experience, it loads and keeps its data in an append-only file in the run's folder; or on `disk`, and in
    the run's folder when it ends.
    """
    local = NodeLocal(run, run_dir, disk) if disk is not None and keeps_experience else None
    files = run_dir / "redis" if local is None else local.folder
    bind = _ALL_INTERFACES if interface is None else address_of(interface)
    try:
        server = EmbeddedRedis(
            maxmemory_bytes=int(str(parse_size(maxmemory))),
            bind=bind,
            port=0,
            access=ServerAccess(secrets.token_urlsafe(_PASSWORD_BYTES)),
            appendonly_dir=files if keeps_experience else None,
            forwards_log=True,
        )
    except ValueError as error:
        raise ConfigError(f"--maxmemory is {maxmemory!r}: {error}", key="--maxmemory") from error
    stop = stop_at_signals()
    folder = RunFolder(run_dir)
    folder.path.mkdir(parents=True, exist_ok=True)
    if local is not None:
        local.fetch()
    try:
        with suppress(StoppedError):
            server.start(stop=stop)
            # The address for other nodes, with its password.
            host = urlsplit(address_for_others(server.address, bind)).netloc.rpartition("@")[2]
            secret = urlsplit(server.address).netloc.rpartition("@")[0]
            folder.write_address(f"redis://{secret}@{host}", run)
            keeper = Keeper(server, _RESTART_LIMIT, advice="the node may have too little memory")
            while not stop.wait(_WATCH_INTERVAL_S):
                keeper.keep()
    finally:
        folder.release()
        server.stop()
        if local is not None:
            local.keep()


def address_of(interface: str) -> str:
    """Return the address of one of this machine's network interfaces, IPv4 if it has one."""
    known = psutil.net_if_addrs()
    if interface not in known:
        names = ", ".join(sorted(known))
        raise ConfigError(f"--interface is {interface!r}; {socket.gethostname()} has {names}", key="--interface")
    for family in (socket.AF_INET, socket.AF_INET6):
        for address in known[interface]:
            if address.family == family:
                return address.address.partition("%")[0]
    raise ConfigError(f"--interface is {interface!r}, which has no address", key="--interface")
