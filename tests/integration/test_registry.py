"""What a run says about itself in Redis: claimed once, compared by all, refused when it is another's."""

from __future__ import annotations

import json
import threading

import pytest

from surreal import __version__
from surreal.base.errors import BusyError, ConfigError, ContractError, StoppedError
from surreal.config import Config, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import FORMAT
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.runs.deleting import delete_run
from surreal.run.process import registry
from surreal.run.process.liveness import Claim
from surreal.run.process.progress import has_learned, read_applied, read_progress, write_progress
from surreal.run.process.registry import Registrant

AGENT, LEARNER = Registrant("agent-0", leads=False), Registrant("learner", leads=True)


def register(client: RedisClient, config: Config, registrant: Registrant = LEARNER) -> bool:
    return registry.register(client, config, registrant)


def join(client: RedisClient) -> None:
    """Let a process of the run be alive."""
    now = client.server_time_s()
    beat = Heartbeat("agent-0-x", "agent", "agent-0", 1, "host", now, now)
    client.redis.hset(client.run_keys.processes, beat.id, beat.encode())  # type: ignore[arg-type]


def test_run_in_use_is_not_deleted(client: RedisClient) -> None:
    register(client, load_config("cartpole-dqn"))
    client.redis.set(client.policy_keys().lease, "token")  # as on a server of parameters alone
    with pytest.raises(BusyError, match="is in use"):
        delete_run(client)
    client.redis.delete(client.policy_keys().lease)
    client.redis.set(client.shard_keys(3, 4).lease, "token")
    with pytest.raises(BusyError, match="is in use"):
        delete_run(client)
    client.redis.delete(client.shard_keys(3, 4).lease)
    join(client)
    with pytest.raises(BusyError, match=r"is alive \(agent-0\)"):
        delete_run(client)
    client.redis.delete(client.run_keys.processes)
    assert delete_run(client) == 1
    assert client.run not in [entry.run for entry in registry.list_runs(client)]
    with pytest.raises(ConfigError, match="holds nothing of run"):
        delete_run(client)


def test_first_process_registers_and_others_learn_all_but_addresses(client: RedisClient) -> None:
    config = load_config("cartpole-dqn", ["redis.address=redis://:secret@host:1", "learner.batch_size=32"])
    register(client, config)
    stored = registry.stored_config(client, ["agent.count=7"])
    assert (stored.learner.batch_size, stored.agent.count, stored.redis.address) == (32, 7, None)
    assert b"secret" not in bytes(client.redis.get(client.run_keys.config))  # type: ignore[arg-type]
    assert [entry.title for entry in registry.list_runs(client) if entry.run == client.run] == ["cartpole-dqn"]


def test_addresses_that_another_peer_stored_are_not_used(client: RedisClient) -> None:
    register(client, load_config("cartpole-dqn"))
    stored = json.loads(client.redis.get(client.run_keys.config) or b"")
    stored["config"]["redis"] = {"replay_address": ["stranger:6379"], "parameter_address": "stranger:6379"}
    client.redis.set(client.run_keys.config, json.dumps(stored))
    found = registry.stored_config(client, ["redis.parameter_address=mine:6379"])
    assert (found.replay_addresses, found.redis.parameter_address) == ([None], "mine:6379")


def test_unknown_run_and_wrong_override_are_config_errors(client: RedisClient) -> None:
    with pytest.raises(ConfigError, match="knows no run"):
        registry.stored_config(client)
    register(client, load_config("cartpole-dqn"))
    with pytest.raises(ConfigError, match=r"learner\.batch_sise"):
        registry.stored_config(client, ["learner.batch_sise=3"])


def rewrite(client: RedisClient, **changes: object) -> None:
    """Let another version of Surreal have registered the run."""
    stored = json.loads(client.redis.get(client.run_keys.config))  # type: ignore[arg-type]
    client.redis.set(client.run_keys.config, json.dumps({**stored, **changes}))


@pytest.mark.parametrize("changes", [{"format": FORMAT + 1, "surreal": "9.9"}, {"format": None, "surreal": "x" * 999}])
def test_a_version_with_another_format_is_refused(client: RedisClient, changes: dict[str, object]) -> None:
    config, message = load_config("cartpole-dqn"), rf"this process has format {FORMAT}, of Surreal 0.*--delete"
    register(client, config)
    rewrite(client, **changes)
    for act in (
        lambda: register(client, config),
        lambda: register(client, config, AGENT),
        lambda: registry.compare(client, config, AGENT),
        lambda: registry.stored_config(client),
    ):
        with pytest.raises(ContractError, match=message) as refused:
            act()
        assert len(str(refused.value)) < 500
    assert delete_run(client) == 1  # the remedy


def test_a_version_with_the_same_format_is_told_that_it_fits(
    client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_config("cartpole-dqn")
    register(client, config)
    rewrite(client, surreal="9.9")
    register(client, config, AGENT)
    assert f"is of Surreal 9.9, and this process is of Surreal {__version__}; both have format" in caplog.text
    register(client, config)  # from now on it is the learner's version
    caplog.clear()
    register(client, config, AGENT)
    assert "Surreal" not in caplog.text


def test_what_is_not_shared_may_differ(client: RedisClient) -> None:
    register(client, load_config("cartpole-dqn"))
    join(client)
    register(client, load_config("cartpole-dqn", ["env.num_envs=2", "learner.batch_size=32"]))


def test_other_configuration_is_refused_while_a_process_is_alive(client: RedisClient) -> None:
    register(client, load_config("cartpole-dqn"))
    join(client)
    other = load_config("cartpole-dqn", ["env.id=Acrobot-v1"])
    with pytest.raises(ContractError) as refused:
        register(client, other)
    assert refused.value.diff == ('env.id: "CartPole-v1" -> "Acrobot-v1"',)


def test_other_configuration_replaces_that_of_a_run_whose_processes_are_gone(client: RedisClient) -> None:
    register(client, load_config("cartpole-dqn"))
    register(client, load_config("cartpole-dqn", ["env.id=Acrobot-v1"]))
    assert registry.stored_config(client).env.id == "Acrobot-v1"


def test_finished_run_is_not_gone_on_with_by_accident(client: RedisClient) -> None:
    registry.require_fresh(client, "default")
    client.redis.hset(client.policy_keys("default").params, "version", 3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="--resume continues it"):
        registry.require_fresh(client, "default")
    join(client)
    registry.require_fresh(client, "default")


def test_first_reason_to_stop_stays(client: RedisClient) -> None:
    assert registry.stop_reason(client) == ""
    assert registry.request_stop(client, "first")
    assert not registry.request_stop(client, "second")
    assert registry.stop_reason(client) == "first"
    registry.clear_stop(client)
    assert registry.stop_reason(client) == ""


def test_emptied_redis_is_told_again(client: RedisClient) -> None:
    config = load_config("cartpole-dqn")
    register(client, config)
    client.delete_run()
    registry.compare(client, config, AGENT)
    assert registry.stored_config(client).env.id == "CartPole-v1"
    assert client.run in [entry.run for entry in registry.list_runs(client)]


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"shared": 3, "config": {}}', b"\xff\xfe"])
def test_bytes_that_are_no_registration_count_as_none(client: RedisClient, value: bytes) -> None:
    client.redis.set(client.run_keys.config, value)
    with pytest.raises(ConfigError, match="knows no run"):
        registry.stored_config(client)


def test_progress_survives_the_way_and_other_texts_do_not_hurt() -> None:
    assert read_progress(write_progress(3, 700)) == {"updates": 3, "global_step": 700}
    assert read_progress("update 3") == {}
    assert has_learned(write_progress(3, 700, skipped=2))
    assert not has_learned(write_progress(3, 700, skipped=3))
    assert not has_learned(write_progress(0, 700))
    assert has_learned("update 3"), "who writes another text knows better"
    told = write_progress(3, 700, {"a": 5})
    assert read_progress(told) == {"updates": 3, "global_step": 700}
    assert [read_applied(told, sender) for sender in ("a", "b")] == [5, None]
    assert read_applied("update 3", "a") is None
    assert read_progress('{"updates": "x"}') == {}


def test_of_two_that_come_at_once_one_wins(client: RedisClient) -> None:
    other = Registrant("agent-1", leads=False)
    assert not Claim(client, AGENT.name).try_take()
    assert not Claim(client, other.name).try_take()
    register(client, load_config("cartpole-dqn"), AGENT)  # and has no heartbeat yet
    with pytest.raises(ContractError):
        register(client, load_config("cartpole-dqn", ["env.id=Acrobot-v1"]), other)
    registry.compare(client, load_config("cartpole-dqn"), AGENT)


def test_the_learners_configuration_is_the_runs_whoever_came_first(client: RedisClient) -> None:
    wrong, right = load_config("cartpole-dqn", ["env.id=Acrobot-v1"]), load_config("cartpole-dqn")
    assert not Claim(client, AGENT.name).try_take()
    register(client, wrong, AGENT)
    join(client)
    client.redis.set(client.policy_keys().contract, "of the wrong model")
    assert register(client, right, LEARNER)
    assert client.redis.get(client.policy_keys().contract) is None
    with pytest.raises(ContractError, match="this process differs"):
        registry.compare(client, wrong, AGENT)
    registry.compare(client, right, Registrant("agent-1", leads=False))
    with pytest.raises(ContractError):  # a second one is none
        register(client, wrong, Registrant("learner-1", leads=True))


def test_a_process_without_a_configuration_waits_for_the_learners(
    client: RedisClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal.base.system.logs.PATIENCE_S", 0.0)
    register(client, load_config("cartpole-dqn", ["env.id=Acrobot-v1"]), AGENT)
    found: list[Config] = []
    stop = threading.Event()
    thread = threading.Thread(target=lambda: found.append(registry.wait_for_config(client, ["seed=3"], stop)))
    thread.start()
    while "waiting for the learner of run" not in caplog.text:
        assert thread.is_alive()
    register(client, load_config("cartpole-dqn"), LEARNER)
    thread.join(30.0)
    assert (found[0].env.id, found[0].seed) == ("CartPole-v1", 3)
    client.redis.delete(client.run_keys.config)
    stop.set()
    with pytest.raises(StoppedError):
        registry.wait_for_config(client, [], stop)
