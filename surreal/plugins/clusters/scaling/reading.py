"""`RunReader`: looks at one run, or at all runs of a Redis, in one round trip.

All that is told is in the heartbeats of a run's processes, so a look costs the server as little with many env steps a
second as with few. Of a Redis Cluster, each run's server is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from surreal.base.errors import RedisUnavailableError
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.connection.keys import RUNS, RUNS_HASH_SLOT, RunKeys
from surreal.distributed.telemetry.heartbeats import Heartbeat, parse_heartbeats
from surreal.run.view.reader import Snapshot, summarize_processes


class RunNow(NamedTuple):
    """A run of which somebody is alive."""

    run: str
    snapshot: Snapshot
    alive: tuple[Heartbeat, ...]
    is_ending: bool  #: whether it was told to


class RunReader:
    """Reads; used by one thread at a time.

    Args:
        client: of the Redis.
        run: the only one that is read; None: all.

    Attributes:
        address: of the Redis, for messages.
    """

    def __init__(self, client: RedisClient, run: str | None) -> None:
        self.address = client.address
        self._client = client
        self._is_one = run is not None
        self._runs: list[str] = [run] if run is not None else []
        self._clients: dict[int, RedisClient] = {}  # of a cluster, by hash slot

    def read(self) -> list[RunNow]:
        """The runs that are alive now.

        A run that is new in the list costs a second round trip, once.

        Raises:
            RedisUnavailableError: no answer, or refused.
        """
        found = self._ask(self._runs)
        new = [run for run in self._runs if run not in found]
        if new:
            found |= self._ask(new)
        return [now for run in self._runs if (now := found.get(run)) is not None]

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()
        self._client.close()

    def _ask(self, runs: Sequence[str]) -> dict[str, RunNow | None]:
        """Ask for these runs, and for the list of all; None stands for one of which nobody is alive."""
        asked: dict[RedisClient, list[str]] = {}
        if not self._is_one:
            asked[self._at(RUNS_HASH_SLOT)] = []
        for run in runs:
            asked.setdefault(self._at(RunKeys(run).hash_slot), []).append(run)
        found: dict[str, RunNow | None] = {}
        for client, there in asked.items():
            found |= self._ask_server(client, there, lists=not self._is_one and client is self._at(RUNS_HASH_SLOT))
        return found

    def _ask_server(self, client: RedisClient, runs: Sequence[str], *, lists: bool) -> dict[str, RunNow | None]:
        def ask() -> Any:
            pipeline = client.redis.pipeline(transaction=False)
            pipeline.time()
            for run in runs:
                pipeline.hgetall(RunKeys(run).processes)
                pipeline.get(RunKeys(run).stop)
            if lists:
                pipeline.hkeys(RUNS)
            return pipeline.execute()

        answers = client.attempt(ask, what="read the runs")
        if answers is None:
            raise RedisUnavailableError(f"Redis at {client.address} does not answer", address=client.address)
        (seconds, micros), *rest = answers
        if lists:
            self._runs = sorted(filter(None, map(_run_name, rest.pop())))
        now_s = seconds + micros / 1e6
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return {run: _run_now(run, beats, stop, now_s) for run, (beats, stop) in zip(runs, pairs, strict=True)}

    def _at(self, hash_slot: int) -> RedisClient:
        if not self._client.is_cluster:
            return self._client
        if hash_slot not in self._clients:
            self._clients[hash_slot] = self._client.at_hash_slot(hash_slot)
        return self._clients[hash_slot]


def _run_now(run: str, beats: dict[bytes, bytes], stop: bytes | None, now_s: float) -> RunNow | None:
    snapshot = summarize_processes(parse_heartbeats(beats.values(), now_s=now_s))
    alive = tuple(snapshot.alive)
    return RunNow(run, snapshot, alive, is_ending=bool(stop)) if alive else None


def _run_name(name: bytes) -> str:
    """The run's id; "" for what is none: what stands in Redis may be anything."""
    try:
        return check_name(name.decode(), "run id")
    except ValueError:
        return ""
