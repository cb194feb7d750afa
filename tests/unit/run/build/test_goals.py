"""The functions of environments with goals: found through wrappers, and refused before a run starts where they fail."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.envs.examples import BitFlip
from surreal.replay import HindsightReplay
from surreal.run.build.check import check_names
from surreal.run.build.goals import goal_functions
from surreal.run.build.learning import build_replay

NOWHERE = ReplayShards.of(RedisClient("unix:///nowhere"))


class NoReward(gymnasium.Env[Any, Any]):
    """The goals of BitFlip without its `compute_reward`."""

    def __init__(self) -> None:
        env = BitFlip()
        self.observation_space, self.action_space = env.observation_space, env.action_space


class OneByOne(BitFlip):
    """A `compute_reward` that judges one goal at a time."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -float((achieved_goal != desired_goal).any())


def config_of(*overrides: str) -> Config:
    return load_config("bitflip-her-dqn", ["env.kwargs={}", *overrides])


def test_the_functions_are_those_of_the_environment() -> None:
    replay = build_replay(load_config("bitflip-her-dqn", ["replay.args.her_ratio=0.5"]), NOWHERE, seed=0)
    assert isinstance(replay, HindsightReplay)
    assert replay.her_ratio == 0.5
    functions = goal_functions(
        load_config(
            "bitflip-her-dqn", ["env.kwargs.n=3", "env.wrappers=[{name: time_limit, args: {max_episode_steps: 2}}]"]
        )
    )
    goals = np.eye(3, dtype=np.float32)
    assert functions["compute_reward"](goals, goals[[0, 0, 2]], {}).tolist() == [0, -1, 0]
    assert functions["compute_terminated"](goals, goals[[0, 0, 2]], {}).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("overrides", "key", "message"),
    [
        (["env.id=CartPole-v1"], "replay.class", "its observations have no achieved_goal and no desired_goal; choose"),
        ([f"env.id={__name__}:NoReward"], "replay.class", "its environment has no compute_reward; choose"),
        ([f"env.id={__name__}:OneByOne"], "env.id", r"gives shape \[\] for 20 goals; it must give one .*, \[20\]"),
        (["env.frame_stack=2"], "env.frame_stack", "is 2, but replay.class relabels single observations; set it to 1"),
        (["env.wrappers=[{name: reward_scale, args: {scale: 3}}]"], "env.id", "paid -3 where .* gives -1"),
        (["env.id=nobody:Knows-v0"], "replay.class", "in the learner's process: .*; install the environment there"),
        (["env.id=game:tictactoe"], "replay.class", "is a game"),
    ],
)  # fmt: skip
def test_an_environment_that_cannot_be_relabeled_is_refused(overrides: list[str], key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build_replay(config_of(*overrides), NOWHERE, seed=0)
    assert caught.value.key == key


def test_steps_that_are_summed_are_refused_before_anything_is_made() -> None:
    with pytest.raises(
        ConfigError, match=r"learner.n_step is 3, but HindsightReplay relabels single steps: .* \(--set\)"
    ):
        check_names(config_of("learner.n_step=3"))
    with pytest.raises(ConfigError, match=r"replay.args.her_ratio is 2; it must be in \[0, 1\]"):
        check_names(config_of("replay.args.her_ratio=2"))
    with pytest.raises(ConfigError, match="compute_reward is set by other settings; leave it out"):
        check_names(config_of("replay.args.compute_reward=mine"))


def test_a_task_of_gymnasium_robotics_is_made_and_judged() -> None:
    pytest.importorskip("gymnasium_robotics")
    functions = goal_functions(load_config("fetchreach-her-sac"))
    near, far = np.zeros((2, 3)), np.array([[0.0, 0.04, 0.0], [0.0, 0.06, 0.0]])  # the task's threshold is 0.05 m
    assert functions["compute_reward"](near, far, {}).tolist() == [0.0, -1.0]
