"""Stacks of frames: in the plain loop, and around environments that pools drive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import surreal.envs  # noqa: F401 - registers surreal/CartPoleDict-v0
from surreal.base.errors import EnvError
from surreal.envs import Env, FrameStack, GymEnv, make_env


class Counter(Env):
    """Frames are numbers; every third step ends an episode, and the next step resets."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 99, (1,), np.int64), spaces.Discrete(2)
        self.count, self.left = 0, 0

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.count, self.left = self.count + 1, 3
        return np.array([self.count]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        if not self.left:
            obs, info = self.reset()
            return obs, 0.0, False, {**info, "phantom": True}
        self.count, self.left = self.count + 1, self.left - 1
        return np.array([self.count]), 1.0, not self.left, {}

    def close(self) -> None:
        pass


def test_an_episode_begins_with_its_first_frame_repeated() -> None:
    env = FrameStack(Counter(), 3)
    obs, info = env.reset()
    seen = [obs[:, 0].tolist()]
    for _ in range(5):
        obs, _, _, info = env.step(0)
        seen.append(obs[:, 0].tolist())
    # The fourth step is the reset that a loop without `reset` gets.
    assert seen == [[1, 1, 1], [1, 1, 2], [1, 2, 3], [2, 3, 4], [5, 5, 5], [5, 5, 6]]
    assert [frame.tolist() for frame in info["frames"]] == [[5], [5], [6]]


def test_frames_in_info_are_the_same_objects_step_after_step() -> None:
    env = FrameStack(Counter(), 2)
    obs, first = env.reset()
    new_obs, _, _, second = env.step(0)
    assert second["frames"][0] is first["frames"][1]
    assert obs[:, 0].tolist() == [1, 1]
    assert new_obs[:, 0].tolist() == [1, 2]


def test_dict_observations_are_stacked_leaf_by_leaf() -> None:
    env = FrameStack(GymEnv("surreal/CartPoleDict-v0"), 4)
    obs, _ = env.reset(seed=1)
    assert {key: value.shape for key, value in obs.items()} == {"position": (4, 2), "velocity": (4, 2)}
    assert obs in env.observation_space
    env.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "surreal/CartPoleDict-v0"])
def test_made_environments_stack_as_the_plain_loop_does(env_id: str) -> None:
    made, plain = make_env(env_id, frame_stack=3), FrameStack(GymEnv(env_id), 3)
    (obs, _), (expected, _) = made.reset(seed=1), plain.reset(seed=1)
    assert made.observation_space == plain.observation_space
    for _ in range(5):
        parts = obs.items() if isinstance(obs, dict) else [(..., obs)]
        for key, value in parts:
            np.testing.assert_array_equal(value, expected[key])
        obs, expected = made.step(1)[0], plain.step(1)[0]
    made.close()
    plain.close()


def test_impossible_stacks_are_refused() -> None:
    with pytest.raises(ValueError, match="num_frames is 0"):
        FrameStack(Counter(), 0)
    with pytest.raises(EnvError, match="frame_stack is 0"):
        make_env("CartPole-v1", frame_stack=0)
