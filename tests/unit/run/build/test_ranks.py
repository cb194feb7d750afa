"""A learner of several ranks, as it is checked and built."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay import UniformReplay
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner, build_replay, check_ranks

#: Shards on a server that nobody asks.
SHARDS = ReplayShards([RedisClient("unix:///nowhere")], 5)
RANKS = ("learner.ranks=2", "replay.shards=5")


def config_of(preset: str, *overrides: str) -> Config:
    return load_config(preset, [*RANKS, *overrides])


def test_ranks_divide_the_shards_and_what_they_may_hold() -> None:
    config = config_of("cartpole-dqn", "replay.capacity=50000", "replay.start_size=1001", "replay.max_bytes=64mb")
    replays = [build_replay(config, SHARDS, seed=0, rank=rank) for rank in range(2)]
    assert [[stream.shard for stream in replay.streams] for replay in replays] == [[0, 2, 4], [1, 3]]
    for replay in replays:
        assert (replay.capacity, replay.start_size, replay.batch_size) == (25000, 500, config.learner.batch_size)


def test_what_is_left_to_the_class_is_divided_too() -> None:
    config = config_of("cartpole-dqn", "replay.capacity=null")
    alone = load_config("cartpole-dqn", ["replay.capacity=null"])
    assert build_replay(config, SHARDS, seed=0).capacity == build_replay(alone, SHARDS, seed=0).capacity // 2


@pytest.mark.parametrize("preset", ["cartpole-dqn", "cartpole-ppo", "cartpole-a2c", "pendulum-sac", "cartpole-r2d2"])
def test_learners_that_step_down_gradients_can_be_several_ranks(preset: str) -> None:
    check_ranks(config_of(preset, "agent.count=8"))


@pytest.mark.parametrize("overrides", [(), ("learner.args.seed=7",)])
def test_each_rank_draws_its_own_noise(overrides: tuple[str, ...]) -> None:
    config = config_of("pendulum-sac", "agent.count=8", *overrides)
    draws = []
    for rank in range(3):
        learner: Any = build_learner(config, build_model(config, build_spaces(config)), None, rank=rank)
        draws.append(float(torch.randn((), generator=learner._noise.of(0))))
    assert len({*draws}) == 3


def test_a_learner_that_does_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner.ranks is 2, but TRPOLearner changes its model .* \(--set\)"):
        check_ranks(config_of("cartpole-trpo", "agent.count=8"))


def test_a_replay_that_follows_all_shards_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Whole(UniformReplay):
        def __init__(self, client: RedisClient, *, batch_size: int = 1) -> None:
            super().__init__(client, batch_size=batch_size)

    module = types.ModuleType("their_replays")
    module.Whole = Whole  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_replays", module)
    path = tmp_path / "app.yaml"
    path.write_text("env: {id: CartPole-v1}\nreplay: {class: their_replays.Whole, shards: 2}\nlearner: {ranks: 2}\n")
    config = load_config(path)
    with pytest.raises(ConfigError, match="Whole has no argument shards"):
        check_ranks(config)
