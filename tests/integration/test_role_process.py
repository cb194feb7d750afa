"""The frame of a role process: how it finds its servers, and how it hears that the run ends."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from surreal.base.errors import ConfigError, RedisUnavailableError, StoppedError
from surreal.base.system.health import HealthFile, Vitals
from surreal.base.system.probe import OVER, WORKING
from surreal.cli.program import main
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.learner import DQNLearner
from surreal.run.process import liveness as staying
from surreal.run.process.arguments import RoleArguments
from surreal.run.process.ending import Ending
from surreal.run.process.role import RoleProcess, registry
from surreal.run.process.roles import AGENT, LEARNER, PARAMETER_SERVER, Role
from surreal.run.roles import learner, parameter_server


@pytest.fixture
def join(redis_server: Any, run_id: str, tmp_path: Path) -> Callable[..., RoleProcess]:
    def make(*overrides: str, role: Role = AGENT, **options: Any) -> RoleProcess:
        arguments = RoleArguments(
            config="cartpole-dqn", overrides=overrides, run=run_id, redis=redis_server.address, run_dir=tmp_path,
            connect_timeout_s=0.1, **options,
        )  # fmt: skip
        return RoleProcess(role, arguments, threading.Event())

    return make


@pytest.mark.parametrize(
    ("role", "module", "gradients"), [(LEARNER, learner, "learner"), (PARAMETER_SERVER, parameter_server, "agents")]
)
def test_a_learner_without_a_launcher_tries_an_update_before_it_waits_for_experience(
    join: Callable[..., RoleProcess], role: Role, module: Any, gradients: str
) -> None:
    process = join(f"learner.class={__name__}.FailsInLearn", f"learner.gradients={gradients}", role=role)
    try:
        with pytest.raises(ConfigError, match=r"FailsInLearn fails while it updates .*: ArithmeticError: no more"):
            module.body(process)
    finally:
        process.close()


class FailsInLearn(DQNLearner):
    def learn(self, i: int, batch: Any) -> Any:
        raise ArithmeticError("no more")


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


def test_process_that_comes_while_redis_is_away_for_a_moment_joins_when_it_is_back(
    join: Callable[..., RoleProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, register, tries = join(supervised=True), registry.register, []

    def register_later(*arguments: Any) -> bool:
        tries.append(arguments)
        if len(tries) == 1:
            raise redis.ConnectionError("Connection refused.")
        return register(*arguments)

    monkeypatch.setattr(registry, "register", register_later)
    try:
        process.join_run()
        assert len(tries) == 2
    finally:
        process.close()
        process.client.delete_run()


@pytest.mark.parametrize("before", [None, "enough"])
def test_who_ends_a_run_knows_why_before_its_telemetry_does(
    join: Callable[..., RoleProcess], before: str | None
) -> None:
    process = join(role=LEARNER)  # its telemetry has not begun
    try:
        if before is not None:
            registry.request_stop(process.client, before)
        process.request_stop("max_updates: 10 updates were done")
        assert process.ending().reason == (before or "max_updates: 10 updates were done")
        assert process.ending().status == "finished"
    finally:
        process.close()
        process.client.delete_run()


@pytest.mark.parametrize("is_wrong", [False, True])
def test_what_came_before_the_learner_is_kept_if_its_configuration_agrees(
    join: Callable[..., RoleProcess], is_wrong: bool, caplog: pytest.LogCaptureFixture
) -> None:
    early = join(*(["env.id=Acrobot-v1"] if is_wrong else []))
    early.join_run()
    sender = ExpSender(early.replay)
    send(sender, 20, size=6 if is_wrong else 4)
    learner = join(role=LEARNER)
    thread = threading.Thread(target=learner.join_run)
    thread.start()
    if is_wrong:
        assert early.stop.wait(60.0)
        assert early.failure is not None
        sender.discard()
        early.close()
    thread.join(60.0)
    assert not thread.is_alive()
    try:
        assert learner.replay.stream(0).counts().steps == (0 if is_wrong else 20)
        assert ("20 env steps were dropped" in caplog.text) == is_wrong
        send(ExpSender(learner.replay), 10, size=4)  # which fits: there is nothing of another kind
    finally:
        learner.close()
        learner.client.delete_run()
        if not is_wrong:
            early.close()


def send(sender: ExpSender, steps: int, *, size: int) -> None:
    for step in range(steps):
        obs = np.full(size, step, np.float32)
        sender.send([obs, obs + 1], 0, 1.0, False)
    sender.flush()


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


def test_agents_that_are_told_no_number_take_the_first_that_is_free(join: Callable[..., RoleProcess]) -> None:
    first, second, third = (join(index=None) for _ in range(3))
    assert [process.name for process in (first, second, third)] == ["agent-0", "agent-1", "agent-2"]
    assert [process.index for process in (first, second, third)] == [0, 1, 2]
    try:
        for process in (first, second, third):
            process.join_run()  # as nobody's stand-by
        second.close()
        fourth = join(index=None)
        assert fourth.name == "agent-1"
        # Its random numbers are those of its number.
        assert fourth.rng().random() == join(index=1).rng().random() != first.rng().random()
        fourth.close()
    finally:
        for process in (first, third):
            process.close()
        first.client.delete_run()


@pytest.mark.parametrize("option", ["stay", "once"])
def test_a_process_that_stays_takes_no_part_in_a_run_that_has_ended(
    join: Callable[..., RoleProcess], option: str
) -> None:
    process = join(resume=True, **{option: True})
    registry.request_stop(process.client, "enough")
    try:
        with pytest.raises(StoppedError, match="enough"):
            process.join_run()
        assert registry.stop_reason(process.client) == "enough"  # resuming would have cleared it
        assert process.ending() == Ending("enough")
    finally:
        process.close()
        process.client.delete_run()


@pytest.mark.parametrize("status", ["running", "interrupted"])
def test_a_learner_that_was_killed_or_drained_at_the_end_comes_back_to_write_the_result(
    join: Callable[..., RoleProcess], tmp_path: Path, status: str
) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"status": status}))
    process = join(role=LEARNER, resume=True, stay=True)
    registry.request_stop(process.client, "enough")
    try:
        process.join_run()
        assert process.ending() == Ending("enough")
    finally:
        process.close()
    (tmp_path / "result.json").write_text(json.dumps({"status": "finished"}))
    process = join(role=LEARNER, resume=True, stay=True)
    try:
        with pytest.raises(StoppedError, match="enough"):
            process.join_run()
    finally:
        process.close()
        process.client.delete_run()


def test_staying_ends_with_a_signal_or_when_the_run_goes_on(
    redis_server: Any, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staying, "_LOOK_INTERVAL_S", 0.02)
    monkeypatch.setattr(staying, "_POLL_INTERVAL_S", 0.01)
    client = RedisClient(redis_server.address, run=run_id)
    health = HealthFile("agent", lambda: Vitals(WORKING), None)
    signals: list[signal.Signals] = []

    def begin() -> threading.Thread:
        own = RedisClient(redis_server.address, run=run_id)
        thread = threading.Thread(target=staying.stay, args=(own, "the run has its env steps", signals, health))
        thread.start()
        return thread

    registry.register(client, load_config("cartpole-dqn"), registry.Registrant("learner", leads=True))
    thread = begin()  # it knows of the end before the learner has said so
    thread.join(0.3)
    assert thread.is_alive()
    assert health.look() == Vitals(OVER)
    assert main(["stop", run_id, "--redis", redis_server.address]) == 0
    thread.join(0.3)
    assert thread.is_alive()
    assert main(["stop", run_id, "--redis", redis_server.address, "--undo", "--delete"]) == 2
    assert registry.stop_reason(client) == "surreal stop"
    config = client.redis.get(client.run_keys.config)
    client.redis.delete(client.run_keys.config, client.run_keys.stop)
    thread.join(0.3)
    assert thread.is_alive()  # Redis was emptied: that is no word of going on
    client.redis.set(client.run_keys.config, config)
    registry.request_stop(client, "max_env_steps")
    assert main(["stop", run_id, "--redis", redis_server.address, "--undo"]) == 0
    thread.join(30.0)
    assert not thread.is_alive()
    thread = begin()
    signals.append(signal.SIGTERM)
    thread.join(30.0)
    assert not thread.is_alive()
    client.delete_run()
    client.close()
