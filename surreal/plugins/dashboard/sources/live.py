"""The state of one run in Redis: what `surreal status` and `surreal replay info` read, and nothing heavier."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from redis.exceptions import RedisError

from surreal.base.errors import ConfigError, SurrealError
from surreal.config import Config, load_config
from surreal.distributed.connection.address import FoundAddress
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.stream.info import ReplayInfo, replay_info
from surreal.run.process import registry
from surreal.run.process.run_folder import CONFIG_NAME
from surreal.run.view.live.trend import Bound, RunLimits, Trend, nearest_bound
from surreal.run.view.reader import RunReader
from surreal.run.view.run_view import RunView

#: Maximum time that a page waits for a server that does not answer, s.
_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Live:
    """The current state of a run in Redis."""

    view: RunView
    age_s: float  #: time since the run began
    shards: tuple[ReplayInfo, ...]
    config: Config | None  #: None: it is not registered yet
    bound: Bound | None = None  #: the limit that ends the run first


class LiveRun:
    """Reads one run in Redis; connects at the first reading.

    The configuration in the run's folder, or in Redis if the folder is elsewhere, names its other servers.
    """

    def __init__(self, address: str, run: str, *, title: str, started: float, folder: Path | None) -> None:
        self.address, self._title, self._started, self._folder = address, title, started, folder
        try:
            self._client = self._connect(address, run)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self._others: list[RedisClient] = []
        self._config: Config | None = None
        self._trend = Trend()
        self._replay: ReplayShards | None = None
        self._parameters: RedisClient | None = None

    def look(self) -> Live:
        try:
            if self._config is None:
                self._find_servers()
            reader = RunReader(
                self._client,
                has_counts=True,
                is_patient=True,
                replay=self._replay,
                parameter_client=self._parameters,
                policy=None if self._config is None else self._config.published_policy,
            )
            view = replace(reader.read(), title=self._title, created=self._started)
            replay = self._replay or ReplayShards(self._client)
            shards = tuple(replay_info(replay, stream.shard) for stream in replay.streams())
        except RedisError as error:
            raise SurrealError(f"Redis at {self._client.address}: {error}") from error
        since_s = max(0.0, time.time() - self._started) if self._started else 0.0
        age_s = since_s if view.age_s is None else view.age_s
        self._trend.add(view, time.monotonic())
        limits = RunLimits() if self._config is None else RunLimits.of(self._config)
        bound = nearest_bound(limits, view, self._trend, age_s)
        return Live(view, age_s, tuple(shard for shard in shards if shard.epoch), self._config, bound)

    def stop(self, reason: str) -> bool:
        """Ask the run to end, and return whether this was the first request."""
        return self._client.retry(lambda: registry.request_stop(self._client, reason), what="ask the run to stop")

    def close(self) -> None:
        if self._replay is not None:
            self._replay.close()
        for client in (self._client, *self._others):
            client.close()

    def _find_servers(self) -> None:
        """Connect to the servers of experience and parameters that the run's configuration names."""
        with suppress(SurrealError):
            folder = self._folder
            self._config = load_config(folder / CONFIG_NAME) if folder else registry.stored_config(self._client)
        if self._config is None:
            return
        clients = [self._other(address) for address in self._config.replay_addresses]
        with suppress(ValueError):
            self._replay = ReplayShards(clients, max(self._config.num_shards, len(clients)))
        self._parameters = self._other(self._config.redis.parameter_address)

    def _other(self, address: str | None) -> RedisClient:
        if address is None:
            return self._client
        self._others.append(self._connect(FoundAddress(address, self.address), self._client.run))
        return self._others[-1]

    @staticmethod
    def _connect(address: str, run: str) -> RedisClient:
        return RedisClient(address, run=run, timeout_s=_TIMEOUT_S, retry_timeout_s=_TIMEOUT_S)


#: Opens a run in Redis; tests pass another.
OpenLive = Callable[..., LiveRun]
