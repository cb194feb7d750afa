"""`LeagueExchange`: a league in Redis. The learner writes its table and versions, agents read them and report games.

A version's parameters are published like those of any policy, under their own name (`default.past.120`), so
agents on every machine get them the same way.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from surreal.base.pytorch import Module
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.distributed.parameters.published import Published, PublishedReader

#: Reports that wait for a learner that is away, and games of a report.
_MAX_REPORTS = 10_000
_READ_COUNT = 1000
_MAX_REPORT_BYTES = 1 << 16
_MAX_TABLE_BYTES = 1 << 20
_MAX_GAMES = 100_000


class Games(NamedTuple):
    """The learner's score in games against one version."""

    version: int
    score: float
    games: int


class LeagueExchange:
    """The keys of one policy's league; every method is one or two round trips."""

    def __init__(self, client: RedisClient, policy: str) -> None:
        self._client = client
        self._policy = policy
        keys = client.policy_keys(policy)
        self._league, self._games = keys.league, keys.games

    # -- the learner -------------------------------------------------------------------------------------------------

    def write_table(self, table: Mapping[str, Any]) -> None:
        """Publish the league's table to agents; raises `RedisError`."""
        self._client.redis.set(self._league, json.dumps(table))

    def publish(self, model: Module, version: int, stop: threading.Event | None = None) -> None:
        """Publish a version's parameters; the model gets the version."""
        broadcaster = TorchBroadcaster(self._client, model, policy=self._name(version), stop=stop)
        broadcaster.propose(version - 1)
        broadcaster.broadcast(message=f"version {version} of policy {self._policy}")
        broadcaster.close()

    def find_missing(self, versions: Iterable[int]) -> list[int]:
        """Return those of these versions that are not in Redis; raises `RedisError`."""
        wanted = list(versions)
        pipeline = self._client.redis.pipeline(transaction=False)
        for version in wanted:
            pipeline.exists(self._client.policy_keys(self._name(version)).params)
        return [version for version, found in zip(wanted, pipeline.execute(), strict=True) if not found]

    def remove(self, version: int) -> None:
        """Remove a version's parameters; raises `RedisError`."""
        self._client.unlink(f"{self._client.policy_keys(self._name(version)).prefix}*")

    def take_games(self) -> list[Games]:
        """Take the results that agents have reported; raises `RedisError`."""
        entries: Any = self._client.redis.xrange(self._games, count=_READ_COUNT)
        if entries:
            self._client.redis.xdel(self._games, *(number for number, _ in entries))
        return list(chain.from_iterable(_read_report(fields.get(b"games", b"")) for _, fields in entries))

    # -- agents ------------------------------------------------------------------------------------------------------

    def read_table(self) -> Any:
        """The league's table, as JSON has it; None if there is none. Raises `RedisError`."""
        text: Any = self._client.redis.get(self._league)
        if text is None or len(text) > _MAX_TABLE_BYTES:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None

    def report(self, games: Iterable[Games]) -> None:
        """Report games to the learner; raises `RedisError`."""
        entry: Any = {"games": json.dumps([list(each) for each in games])}
        self._client.redis.xadd(self._games, entry, maxlen=_MAX_REPORTS, approximate=True)

    def fetch(self, version: int) -> Published | None:
        """Read a version's parameters; None if they are not in Redis. Raises `CodecError` or `RedisError`."""
        return PublishedReader(self._client, [self._client.policy_keys(self._name(version))]).newest()

    def _name(self, version: int) -> str:
        return f"{self._policy}.past.{version}"


def _read_report(text: bytes) -> list[Games]:
    try:
        rows = json.loads(text) if len(text) <= _MAX_REPORT_BYTES else []
        games = [Games(int(version), float(score), int(count)) for version, score, count in rows]
    except (ValueError, TypeError, RecursionError, OverflowError):
        return []
    return [each for each in games if 0 < each.games <= _MAX_GAMES and 0.0 <= each.score <= each.games]
