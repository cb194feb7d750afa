"""Redis is killed and comes back, is emptied, or has no room left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.client import Pipeline
from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import RUNS, run_pattern
from surreal.plugins.chaos.disturbances.processes import Disturbance, Kind, NotDoneError

#: Longest value of Redis is 512 MiB.
_BALLAST_BYTES = 256 << 20
#: Filling up takes that much real memory of the machine.
MOST_BALLAST_BYTES = 4 << 30
#: What is written on top of a full server until it refuses, and how long it outlives a chaos that was killed.
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
        kill: ends it at once; returns its process id.
        start: starts it again, or does nothing where another program does.
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
    """All keys of the run are removed from a server at one instant, and its scripts with them.

    What other runs have on the server stays.

    Args:
        target: name of the server.
        client: client of the run, at this server.
        look: reads the run's shards on this server and, in the same transaction, does what is handed to it.
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
    """Ballast takes all the memory that the server has left; it expires if it is not removed.

    `maxmemory` stays unchanged: the run reads it when it starts, and would refuse to continue with less.

    Args:
        target: name of the server.
        client: client of the run, at this server.
        hold_s: how long it is to last, s.
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
            # Where Redis is away the keys expire, or are gone.
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
            pipeline.setrange(self._keys[-1], size - 1, b"\0")  # Redis makes the zeros: nothing is sent
            pipeline.pexpire(self._keys[-1], self._ttl_ms)
            pipeline.execute()
        self.detail = f"{self._bytes >> 20} MiB of ballast"
