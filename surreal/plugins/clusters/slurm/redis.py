"""`surreal slurm redis`: the Redis of a job's run, for all of its nodes; the batch script starts it, and ends it last.

Its password is new at each start, and is only in the run folder's `redis.address`, which only its owner can read.
`surreal status` and `surreal top` find it there, from any node that has the folder.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from surreal.base.errors import ConfigError, StoppedError
from surreal.config.schema.fields import parse_size
from surreal.distributed.server.access import ServerAccess
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.owners import Keeper
from surreal.plugins.clusters.redis.server import address_for_others
from surreal.run.process.interrupts import set_at_signals
from surreal.run.process.run_folder import RunFolder

logger = logging.getLogger(__name__)

_ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - it has a password
_PASSWORD_BYTES = 24
_WATCH_INTERVAL_S = 0.2
_RESTART_LIMIT = 5


def serve(run: str, run_dir: Path, *, maxmemory: str, keeps_experience: bool, interface: str | None) -> None:
    """Serve until a signal comes; a server that dies is restarted at the same address.

    If it keeps experience, it loads and keeps its data in an append-only file in the run's folder.
    """
    bind = _ALL_INTERFACES if interface is None else address_of(interface)
    try:
        server = EmbeddedRedis(
            maxmemory_bytes=int(str(parse_size(maxmemory))),
            bind=bind,
            port=0,
            access=ServerAccess(secrets.token_urlsafe(_PASSWORD_BYTES)),
            appendonly_dir=run_dir / "redis" if keeps_experience else None,
            forwards_log=True,
        )
    except ValueError as error:
        raise ConfigError(f"--maxmemory is {maxmemory!r}: {error}", key="--maxmemory") from error
    stop = threading.Event()
    set_at_signals(stop)
    folder = RunFolder(run_dir)
    folder.path.mkdir(parents=True, exist_ok=True)
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
