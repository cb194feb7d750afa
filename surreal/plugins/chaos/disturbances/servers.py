"""Disturbances of Redis: it is killed and comes back, is emptied, is full, or loses all connections of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psutil
from redis.client import Pipeline
from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import RUNS, run_pattern
from surreal.plugins.chaos.disturbances.processes import Disturbance, Kind, NotDoneError

#: Size of a ballast value; the longest value of Redis is 512 MiB.
_BALLAST_BYTES = 256 << 20
#: Maximum memory of the machine that is filled.
MOST_BALLAST_BYTES = 4 << 30
#: Bytes beyond the server's limit, which make it refuse writes, and time that ballast outlives a killed chaos.
_OVERFLOW_BYTES = 1 << 20
_SPARE_S = 5.0

_EMPTY = """
local removed = 0
for i = 2, #ARGV do
  for _, key in ipairs(redis.call('KEYS', ARGV[i])) do
    removed = removed + redis.call('UNLINK', key)
  end
end
redis.call('HDEL', KEYS[1], ARGV[1])
return removed
"""


class Restart(Disturbance):
    """SIGKILL of redis-server; it comes back at the end.

    Args:
        target: name of the server.
        kill: kills it, and returns its process id.
        start: starts it again, or does nothing if another program does.
        before: called right before it is killed.
    """

    kind = Kind.RESTART

    def __init__(
        self, target: str, kill: Callable[[], int], start: Callable[[], object], before: Callable[[], object]
    ) -> None:
        super().__init__(target)
        self._kill = kill
        self._start = start
        self._before = before
        self._is_down = False

    def begin(self) -> None:
        try:
            self._before()
            pid = self._kill()
        except RedisError as error:
            raise NotDoneError(f"Redis does not answer: {error}") from error
        self._is_down = True
        self.detail = f"process {pid}"

    def end(self) -> None:
        if self._is_down:
            self._start()
        self._is_down = False


class Flush(Disturbance):
    """Removes all keys of the run and all scripts from a server at one instant; keys of other runs stay.

    Args:
        target: name of the server.
        client: client of the run, at this server.
        look: reads the run's shards on this server, and executes further commands in the same transaction.
    """

    kind = Kind.FLUSH
    lasts = False

    def __init__(
        self, target: str, client: RedisClient, look: Callable[[Callable[[Pipeline], object]], object]
    ) -> None:
        super().__init__(target)
        self._client = client
        self._look = look

    def begin(self) -> None:
        run = self._client.run

        def empty(pipeline: Pipeline) -> None:
            pipeline.eval(_EMPTY, 1, RUNS, run, *run_pattern(run))
            pipeline.script_flush()

        try:
            self._look(empty)
        except RedisError as error:
            raise NotDoneError(f"Redis does not answer: {error}") from error


class Full(Disturbance):
    """Fills a server with ballast, which expires if it is not removed.

    `maxmemory` stays unchanged: the run reads it when it starts, and would refuse to continue with less.

    Args:
        target: name of the server.
        client: client of the run, at this server.
        hold_s: duration, s.
    """

    kind = Kind.FULL

    def __init__(self, target: str, client: RedisClient, hold_s: float) -> None:
        super().__init__(target)
        self._client = client
        self._ttl_ms = int(1000 * (hold_s + _SPARE_S))
        self._keys: list[str] = []
        self._bytes = 0

    def begin(self) -> None:
        try:
            self._fill()
        except RedisError as error:
            self.end()
            raise NotDoneError(f"Redis cannot be filled: {error}") from error

    def turn(self) -> None:
        with suppress(RedisError):
            self._fill()

    def end(self) -> None:
        if self._keys:
            # If Redis is away, the keys expire or are gone.
            with suppress(RedisError):
                self._client.execute("UNLINK", *self._keys)
            self._keys = []

    def _fill(self) -> None:
        while True:
            memory: Any = self._client.redis.info("memory")
            room = int(memory["maxmemory"]) - int(memory["used_memory"])
            if room < 0:
                break
            size = min(room + _OVERFLOW_BYTES, _BALLAST_BYTES)
            self._keys.append(self._client.run_keys.ballast(len(self._keys)))
            self._bytes += size
            pipeline = self._client.redis.pipeline()
            pipeline.setrange(self._keys[-1], size - 1, b"\0")  # Redis makes the zeros, nothing is sent
            pipeline.pexpire(self._keys[-1], self._ttl_ms)
            pipeline.execute()
        self.detail = f"{self._bytes >> 20} MiB of ballast"


class Cut(Disturbance):
    """Breaks all connections of the run several times a second, also those that were made again.

    A call that Redis has executed may lose its answer, so its caller repeats it. Nothing must be undone.

    Args:
        target: name of the server.
        client: the connection of chaos, which stays.
        is_exclusive: whether all other connections are the run's; otherwise those of `pids` are found by their ports.
        pids: returns the processes of the run on this machine.
    """

    kind = Kind.CUT

    def __init__(
        self, target: str, client: RedisClient, *, is_exclusive: bool, pids: Callable[[], Iterable[int]]
    ) -> None:
        super().__init__(target)
        self._client = client
        self._is_exclusive = is_exclusive
        self._pids = pids
        self._number = 0

    def begin(self) -> None:
        try:
            self._cut()
        except RedisError as error:
            raise NotDoneError(f"Redis does not answer: {error}") from error

    def turn(self) -> None:
        with suppress(RedisError):
            self._cut()

    def _cut(self) -> None:
        if self._is_exclusive:
            for kind in ("normal", "pubsub"):
                self._number += int(self._client.execute("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"))
        else:
            addresses = _local_ports(self._pids())
            text: Any = self._client.execute("CLIENT", "LIST")
            for line in text.decode(errors="replace").splitlines():
                fields = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
                if fields.get("addr") in addresses:
                    self._number += int(self._client.execute("CLIENT", "KILL", "ID", fields["id"]))
        self.detail = f"{self._number} connections"


def _local_ports(pids: Iterable[int]) -> set[str]:
    """Return the addresses of the connections of processes, as Redis lists them."""
    found = set()
    for pid in pids:
        with suppress(psutil.Error):
            for connection in psutil.Process(pid).net_connections(kind="tcp"):
                if connection.raddr:
                    found.add(f"{connection.laddr.ip}:{connection.laddr.port}")
    return found
