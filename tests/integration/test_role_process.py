"""The frame of a role process: how it finds its servers, and how it hears that the run ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surreal.errors import ConfigError, RedisUnavailableError
from surreal.main.process.arguments import RoleArguments
from surreal.main.process.role import RoleProcess, registry
from surreal.main.process.roles import AGENT


@pytest.fixture
def join(redis_server: Any, run_id: str, tmp_path: Path) -> Callable[..., RoleProcess]:
    def make(*overrides: str, **options: Any) -> RoleProcess:
        arguments = RoleArguments(
            config="cartpole-dqn", overrides=overrides, run=run_id, redis=redis_server.address, run_dir=tmp_path,
            connect_timeout_s=0.1, **options,
        )  # fmt: skip
        return RoleProcess(AGENT, arguments, threading.Event())

    return make


@pytest.mark.parametrize("supervised", [False, True])
def test_stop_reaches_a_process_that_is_waiting(join: Callable[..., RoleProcess], supervised: bool) -> None:
    process = join(supervised=supervised)
    process.join_run()
    try:
        assert not process.stop.is_set()
        registry.request_stop(process.client, "enough")
        process.telemetry.step()
        # A launcher ends its children in an order of its own.
        assert process.stop.is_set() is not supervised
        assert process.telemetry.stop_reason == "enough"
    finally:
        process.close()
        process.client.delete_run()


def test_servers_of_experience_and_parameters_may_be_others(
    join: Callable[..., RoleProcess], start_redis: Callable[..., Any]
) -> None:
    other = start_redis(port=0, password="x")
    process = join(f"redis.replay_address=redis://:x@{other.address}")
    assert process.parameter_client is process.client
    assert process.replay.address == f"redis://:***@{other.address}"
    assert process.replay.run == process.client.run
    process.close()


@pytest.mark.parametrize("key", ["redis.replay_address", "redis.parameter_address"])
def test_each_server_must_answer_at_the_start(join: Callable[..., RoleProcess], key: str) -> None:
    with pytest.raises(RedisUnavailableError, match=r"127\.0\.0\.1:9 did not answer"):
        join(f"{key}=127.0.0.1:9")


def test_nobody_joins_a_run_in_lockstep(join: Callable[..., RoleProcess]) -> None:
    with pytest.raises(ConfigError, match="the learner's process does all by itself, and no agent can join it"):
        join("run.deterministic=true")
