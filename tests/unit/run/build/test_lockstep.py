"""What a run in lockstep changes in its configuration, and what it refuses."""

from __future__ import annotations

import pytest

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.run.build.check import check_names
from surreal.run.build.lockstep import interval_progress, lockstep_config, turn_steps


def load(preset: str, *overrides: str) -> Config:
    return load_config(preset, ["run.deterministic=true", *overrides])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rlx.servers=1", "rlx.servers is 1, but with run.deterministic one process acts and learns"),
        ("agent.count=0", "agent.count is 0"),
        ("replay.shards=2", "replay.shards is 2"),
        ("replay.max_age_s=60", "replay.max_age_s is 60"),
        ("replay.follow=true", "replay.follow is true"),
        ("run.max_env_steps=null", "checkpoint.interval_updates is not set, and run.max_env_steps neither"),
    ],
)
def test_what_no_count_decides_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("cartpole-dqn", override)


def test_replay_without_a_ratio_is_refused_before_a_run_starts() -> None:
    with pytest.raises(ConfigError, match=r"replay\.samples_per_insert is not set, but with"):
        check_names(load("cartpole-dqn", "replay.samples_per_insert=null"))
    check_names(load("cartpole-ppo"))


@pytest.mark.parametrize("preset", ["cartpole-per-dqn", "cartpole-r2d2", "cartpole-vtrace", "pendulum-sac"])
def test_what_is_changed_fits_the_replays_class(preset: str) -> None:
    check_names(lockstep_config(load(preset), begun_updates=7))


def test_nothing_leaves_or_waits_by_the_clock() -> None:
    config = lockstep_config(load("cartpole-ppo", "env.pool=subproc", "env.num_workers=2", "broadcast.interval_s=3"))
    assert config.replay.args["piece_timeout_s"] is None
    assert config.sender.max_delay_s > 1e6
    assert config.broadcast.interval_s == 0.0
    assert (config.env.pool, config.env.num_workers) == ("local", None)
    assert "prefetch" not in config.replay.model_fields_set
    assert lockstep_config(load("cartpole-dqn", "replay.prefetch=8")).replay.prefetch == 1


def test_each_interval_has_a_seed_of_its_own() -> None:
    seeds = [lockstep_config(load("cartpole-dqn", "seed=3"), begun_updates=begun).seed for begun in (0, 100, 200)]
    assert seeds[0] == 3
    assert len(set(seeds)) == 3


def test_learner_has_its_turn_after_a_round_or_a_chunk() -> None:
    assert turn_steps(load("cartpole-ppo")) == 32
    assert turn_steps(load("cartpole-dqn", "sender.chunk_steps=64", "env.num_envs=8")) == 8
    assert turn_steps(load("cartpole-dqn", "sender.chunk_steps=1", "env.num_envs=8")) == 1


def test_interval_ends_by_updates_or_is_a_quarter_of_the_run() -> None:
    config = load("cartpole-dqn", "run.max_env_steps=1000")
    assert interval_progress(config, 0, 900) == 0.0, "a checkpoint without an update would be no new one"
    assert interval_progress(config, 1, 125) == 0.5
    config = load("cartpole-dqn", "checkpoint.interval_updates=50")
    assert interval_progress(config, 25, 900) == 0.5
