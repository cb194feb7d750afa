"""Runs that a Redis knows: how each is doing, without its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import BusyError, ConfigError, RedisUnavailableError
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.recorded.listing import list_runs, runs_in_redis
from surreal.plugins.runs.deleting import delete
from surreal.run.process import registry
from surreal.run.process.ending import Ending, ExitCode, result_of
from surreal.run.process.registry import Registrant
from surreal.run.process.run_folder import RunFolder
from surreal.run.view.reader import RunReader, run_status


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


def test_counts_remain_when_all_processes_have_ended(server: Any) -> None:
    """The version is that of the policy which the run publishes, and the env steps are those of all of its shards."""
    settings = ["broadcast.policy=blue", "replay.shards=2"]
    with RedisClient(server.address, run="one") as client, RedisClient(server.address, run="two") as other:
        registry.register(client, load_config("cartpole-dqn", settings), Registrant("learner", leads=True))
        for policy, version in (("blue", 7), ("default", 3)):
            client.redis.hset(client.policy_keys(policy).params, "version", version)
        for shard, steps in enumerate((100, 20)):
            client.redis.hset(client.shard_keys(shard, 2).meta, "steps", steps)
        other.redis.hset(other.policy_keys().params, "version", 4)  # of a run without a configuration
        view = run_status(client)
        assert (view.run, view.title, view.state, view.version, view.env_steps) == (
            "one",
            "cartpole-dqn",
            "over",
            7,
            120,
        )
        assert RunReader(other, has_counts=True).read().version == 4
        assert RunReader(client, has_counts=True, policy="default").read().version == 3
        assert RunReader(client).read().version == 0  # without counts, heartbeats are all there is
    (listed,) = runs_in_redis(server.address)
    assert (listed.run, listed.env_steps) == ("one", 120)


def test_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="http"):
        runs_in_redis("http://replay-host")


def test_deleting_a_run_takes_its_keys_along(server: Any, tmp_path: Path) -> None:
    config = load_config("bandit-pg", [f"redis.address={server.address}"])
    folder = RunFolder(tmp_path / "one")
    folder.claim()
    folder.begin(config, "one", 1.0)
    folder.write_result(result_of(config, "one", Ending("interrupted", ExitCode.INTERRUPTED), started=1.0))
    folder.release()
    with RedisClient(server.address, run="one") as client, RedisClient(server.address, run="other") as other:
        for each in (client, other):
            registry.register(each, config, Registrant("learner", leads=True))
        now = client.server_time_s()
        beat = Heartbeat("agent-0-x", "agent", "agent-0", 1, "host", now, now)
        client.redis.hset(client.run_keys.processes, beat.id, beat.encode())
        # Its folder says that it is over, but an agent elsewhere is at work.
        (run,) = list_runs([tmp_path])
        with pytest.raises(BusyError, match=r"run one is alive \(agent-0\)"):
            delete(run)
        assert run.folder is not None
        assert run.folder.exists()
        client.redis.delete(client.run_keys.processes)
        delete(run)  # the address is in its configuration
        assert not run.folder.exists()
        assert [entry.run for entry in registry.list_runs(client)] == ["other"]
        (run,) = runs_in_redis(server.address)
        delete(run, server.address)
        assert registry.list_runs(client) == []


def test_redis_that_was_named_must_answer(free_port: int, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "one")
    folder.claim()
    folder.begin(load_config("bandit-pg", [f"redis.address=127.0.0.1:{free_port}"]), "one", 1.0)
    folder.write_address("unix:///nowhere/redis.sock", "one")  # of a server of its own, which died with its launcher
    lock = tmp_path / "one" / "run.lock"
    (run,) = list_runs([tmp_path])
    with pytest.raises(BusyError):
        delete(run)
    lock.unlink()  # as if the launcher had been killed
    with pytest.raises(RedisUnavailableError, match="does not answer"):
        delete(run, f"127.0.0.1:{free_port}")
    assert (tmp_path / "one").exists()
    delete(run)
    assert not (tmp_path / "one").exists()
