"""`EmbeddedRedis`: a redis-server for `surreal run`, `surreal redis` and tests.

It listens on a unix socket that only this user can open, unless a port is requested. It uses at most `maxmemory_bytes`
and then refuses writes (`noeviction`, because evicting keys would corrupt a run). It writes nothing to disk unless
requested. It ends with its owner, also if that is killed.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from surreal.base.errors import BusyError, RedisUnavailableError, StoppedError
from surreal.base.system.files import FileLock
from surreal.distributed.connection.address import parse_address
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server import files, owned_exec
from surreal.distributed.server.access import ServerAccess, warn_of_refusals

logger = logging.getLogger(__name__)

MIN_MAXMEMORY_BYTES = 4 << 20
_LOCK_NAME, _PID_NAME = "redis.lock", "redis.pid"
_POLL_INTERVAL_S, _WATCH_INTERVAL_S = 0.02, 0.2


@dataclass(eq=False, repr=False, kw_only=True)
class EmbeddedRedis:
    """A redis-server that lives as long as this object, or this process.

        with EmbeddedRedis(maxmemory_bytes=512 << 20) as server:
            client = RedisClient(server.address)

    Start it from the main thread: on Linux, the kernel ends it together with the thread that started it. From another
    thread, a small process watches the owner instead.

    Raises:
        ValueError: settings out of range, or open to the network without a password or users.
        RedisUnavailableError: there is no redis-server.
    """

    maxmemory_bytes: int  #: Redis' bound. Agents wait when the replay reaches its share of it
    #: folder for an append-only file, so that the data survives the server; None: only in memory
    appendonly_dir: str | Path | None = None
    bind: str | None = None  #: address to listen on (TCP); None with a port: 127.0.0.1
    port: int | None = None  #: TCP port; 0: a free one, which is here once it has started; None: only a unix socket
    access: ServerAccess | None = None  #: required credentials; needed to bind to more than this machine
    program: str | Path | None = None  #: redis-server to run; None: the one that is found
    start_timeout_s: float = 30.0  #: how long it may take to answer; loading a large append-only file extends it
    forwards_log: bool = False  #: whether its log goes to this process's stderr; otherwise, into a file in its folder

    def __post_init__(self) -> None:
        bind, port = self.bind, self.port
        if self.maxmemory_bytes < MIN_MAXMEMORY_BYTES:
            raise ValueError(f"maxmemory is {self.maxmemory_bytes} bytes; it must be >= {MIN_MAXMEMORY_BYTES}")
        if port is not None and not 0 <= port <= 65535:
            raise ValueError(f"port is {port}; it must be 0 (a free one) to 65535")
        if bind is not None and port is None:
            raise ValueError(f"bind is {bind!r} without a port; give a port, 0 for a free one")
        self._access = self.access or ServerAccess()
        if bind is not None and not files.is_loopback(bind) and not self._access.is_closed:
            raise ValueError(f"binding to {bind} without a password lets anyone steer the run; set one, or make users")
        self._host = None if port is None else bind or "127.0.0.1"
        self._appendonly_dir = None if self.appendonly_dir is None else Path(self.appendonly_dir).resolve()
        self._appendonly_claim: FileLock | None = None
        self._program = files.find_redis_server() if self.program is None else Path(self.program)
        self._log: files.ForwardedLog | None = None
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def address(self) -> str:
        """Address for clients of this machine, password included; `restart` keeps it."""
        if self._host is not None and self.port:
            host = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}.get(self._host, self._host)  # noqa: S104
            return self._access.tcp_address(host, self.port)
        return self.socket_address

    @property
    def socket_address(self) -> str:
        return self._access.socket_address(self._path("redis.sock", "address"))

    @property
    def pid(self) -> int:
        if self._pid is None:
            raise RuntimeError("EmbeddedRedis has no pid before start()")
        return self._pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_path(self) -> Path:
        """Output of redis-server, unless its log is forwarded."""
        return self._path("redis.log", "log")

    def _path(self, name: str, what: str) -> Path:
        if self._folder is None:
            raise RuntimeError(f"EmbeddedRedis has no {what} before start()")
        return self._folder / name

    def start(self, *, stop: threading.Event | None = None) -> EmbeddedRedis:
        """Start the server and wait until it answers.

        Raises:
            RedisUnavailableError: it ended or did not answer in time; the message ends with its last log lines.
            BusyError: another server uses the folder of the append-only file.
            StoppedError: `stop` was set meanwhile.
        """
        if self.is_alive:
            return self
        self._folder = self._folder or files.make_folder()
        if self._host is not None and not self.port:
            self.port = files.free_port(self._host)
        try:
            if self._appendonly_dir is not None:
                self._claim(self._appendonly_dir)
            self._process = self._spawn(self._folder)
            self._wait_until_ready(self._process, stop)
        except BaseException:
            self.stop()
            raise
        logger.info("started redis-server, pid %d, at %s", self.pid, parse_address(self.address).shown)
        return self

    def serve(
        self, stop: threading.Event, on_ready: Callable[[EmbeddedRedis], None] | None = None, *, drain_s: float = 0.0
    ) -> None:
        """Run for other processes and machines until `stop` is set (by SIGINT or SIGTERM).

        Args:
            stop: ends it, also while it starts.
            on_ready: called once, when the server answers.
            drain_s: how long to keep serving after `stop` while clients are connected.

        Raises:
            RedisUnavailableError: it does not start (the port is taken, ...), or ends unexpectedly.
        """
        try:
            with suppress(StoppedError):
                self.start(stop=stop)
                if on_ready is not None:
                    on_ready(self)
            while not stop.wait(_WATCH_INTERVAL_S):
                if not self.is_alive:
                    raise RedisUnavailableError(f"redis-server ended by itself:\n{self._tail()}")
            self._drain(drain_s)
        finally:
            self.stop()

    def restart(self) -> None:
        """Start a dead server at the same address; its data is back if it had an append-only file."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill the server (SIGKILL) and wait for its end; the address stays reserved for `restart`."""
        if self._process is None:
            return
        if self._pid is not None and self._process.poll() is None:  # differs from its pid if a process watches
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the server, with SIGTERM first, and remove its folder."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                logger.warning("redis-server did not end within %.0f s; killing it", timeout_s)
                self.kill()
        self._process = self._pid = None
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if self._appendonly_claim is not None:
            self._appendonly_claim.release(is_removed=True)
            self._appendonly_claim = None

    def __enter__(self) -> EmbeddedRedis:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _claim(self, folder: Path) -> None:
        """Lock the folder of the append-only file: two servers would corrupt each other's file."""
        folder.mkdir(parents=True, exist_ok=True)
        lock = self._appendonly_claim or FileLock(folder / _LOCK_NAME)
        if not lock.acquire():
            raise BusyError(f"{folder} holds the data of a Redis that runs, of {lock.holder()}; name another folder")
        self._appendonly_claim = lock

    def _spawn(self, folder: Path) -> subprocess.Popen[bytes]:
        is_main_thread = threading.current_thread() is threading.main_thread()
        mode = "exec" if sys.platform == "linux" and is_main_thread else "watch"
        shim = [sys.executable, "-I", "-S", owned_exec.__file__, mode, str(os.getpid())]
        with (folder / "redis.log").open("ab") as log:
            process = subprocess.Popen(
                # The configuration goes through stdin: arguments are visible to every user, and it has the password.
                [*shim, str(self._program), "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if self.forwards_log else log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._log = None if process.stdout is None else files.ForwardedLog(process.stdout)
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin as stdin:  # broken if it has ended, which is detected later
                stdin.write(self._config(folder))
        return process

    def _config(self, folder: Path) -> bytes:
        settings = {
            **self._access.settings(self.port or 0),
            "bind": self._host or "127.0.0.1",
            "unixsocket": folder / "redis.sock",
            "pidfile": folder / _PID_NAME,
            "maxmemory": self.maxmemory_bytes,
            "appendonly": "no" if self._appendonly_dir is None else "yes",
            "dir": self._appendonly_dir or folder,
        }
        return files.render_config({**settings, **files.FIXED_SETTINGS})

    def _wait_until_ready(self, process: subprocess.Popen[bytes], stop: threading.Event | None) -> None:
        deadline = time.monotonic() + self.start_timeout_s
        # Through the socket, because another Redis may have taken the port.
        with RedisClient(self.socket_address) as client:
            while True:
                if process.poll() is not None:
                    raise self._failed(f"ended with status {process.returncode}")
                try:
                    # An error is also an answer: the passwords are not known here, or its disk is full.
                    with suppress(AuthenticationError, ResponseError):
                        client.execute("PING")
                        warn_of_refusals(client, self._appendonly_dir)
                    self._pid = int((self.log_path.parent / _PID_NAME).read_text())
                    return
                except BusyLoadingError:
                    deadline = max(deadline, time.monotonic() + 1.0)  # it answers: loading may take any time
                except RedisError as error:
                    if time.monotonic() > deadline:
                        raise self._failed(f"did not answer in {self.start_timeout_s:.0f} s ({error})") from None
                if stop is not None and stop.is_set():
                    raise StoppedError("stopped while redis-server started")
                time.sleep(_POLL_INTERVAL_S)

    def _drain(self, timeout_s: float) -> None:
        """Wait until clients have disconnected; a server that does not report its clients ends at once."""
        deadline = time.monotonic() + timeout_s
        if not self.is_alive or not timeout_s:
            return
        with RedisClient(self.socket_address) as client, suppress(RedisError):
            while time.monotonic() < deadline:
                clients: Any = client.redis.info("clients")
                if clients["connected_clients"] <= 1:  # this one
                    return
                time.sleep(_WATCH_INTERVAL_S)

    def _tail(self) -> str:
        return files.tail(self.log_path) if self._log is None else self._log.tail()

    def _failed(self, what: str) -> RedisUnavailableError:
        return RedisUnavailableError(files.describe_failure(self._program, what, self._tail(), self._host, self.port))
