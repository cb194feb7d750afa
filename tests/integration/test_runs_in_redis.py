"""Runs that a Redis knows: how each is doing, without its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.errors import ConfigError
from surreal.main.process import registry
from surreal.main.process.registry import Registrant
from surreal.runs.in_redis import runs_in_redis


@pytest.fixture
def server(start_redis: Callable[..., Any]) -> Iterator[Any]:
    return start_redis()


def test_runs_are_listed_with_what_their_processes_say(server: Any) -> None:
    with RedisClient(server.address, run="one") as client:
        registry.register(client, load_config("bandit-pg", ["seed=5"]), Registrant("learner", leads=True))
        now = client.server_time_s()
        metrics = {"learner/updates_total": 12.0}
        beat = Heartbeat("learner-x", "learner", "learner", 1, "host", now, now, global_step=340, metrics=metrics)
        client.redis.hset(client.run_keys.processes, beat.id, beat.encode())
        client.redis.hset(client.run_keys.best, "score", '{"mean_return": 2.5}')
    with RedisClient(server.address, run="two") as client:
        registry.register(client, load_config("cartpole-dqn"), Registrant("learner", leads=True))
        registry.request_stop(client, "interrupted by SIGINT")
        client.redis.hset("surreal:runs", "no id of ours!", "{}")
        client.redis.hset(client.run_keys.best, "score", "nonsense")
    one, two = runs_in_redis(server.address)
    assert (one.run, one.status, one.name, one.seed, one.reason) == ("one", "running", "bandit-pg", 5, "")
    assert (one.env_steps, one.updates, one.best_return, one.folder) == (340, 12, 2.5, None)
    assert one.is_in_redis
    assert one.started > 0
    assert (two.run, two.status, two.reason, two.best_return) == ("two", "over", "interrupted by SIGINT", None)


def test_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="http"):
        runs_in_redis("http://replay-host")
