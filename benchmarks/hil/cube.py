"""gym-hil's arm and cube (`PandaPickCubeBase-v0`, states only), with an observation and an action that suit learning.

One step is 0.1 s of simulated time. The reward is 1 when the cube is 10 cm above its place, which ends the episode.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

#: Length of a step, s.
STEP_S = 0.1
#: Largest movement of the gripper in a step, m.
REACH_M = 0.025
#: Center of the workspace, and the unit of positions in observations, m.
_CENTER, _UNIT_M = np.array((0.4, 0.0, 0.1), np.float32), 0.1
_GRIPPER_UNIT = 255.0


class Scene(NamedTuple):
    """Gripper and cube, in m."""

    gripper: NDArray[np.float32]  #: position of the point between the fingers, [3]
    cube: NDArray[np.float32]  #: position of the cube's center, [3]
    closed: float  #: command of the gripper, from 0 (open) to 1


def encode(state: NDArray[np.float32], cube: NDArray[np.float32]) -> NDArray[np.float32]:
    """Make an observation [24] float32 of gym-hil's state [18] and the cube's position [3].

    It has the joints' angles (7) and speeds (7), the gripper's command, the positions of gripper and cube, and the way
    from one to the other; lengths are in decimeters.
    """
    gripper = state[15:18]
    closed = state[14:15] / _GRIPPER_UNIT
    ways = [(gripper - _CENTER) / _UNIT_M, (cube - _CENTER) / _UNIT_M, (cube - gripper) / _UNIT_M]
    return np.concatenate([state[:14], closed, *ways]).astype(np.float32)


def decode(obs: NDArray[np.float32]) -> Scene:
    """Return what an observation of `encode` tells."""
    return Scene(obs[15:18] * _UNIT_M + _CENTER, obs[18:21] * _UNIT_M + _CENTER, float(obs[14]))


class PandaCube(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The arm; an action [4] in [-1, 1] moves the gripper by up to 2.5 cm along x, y and z, and closes or opens it.

    The cube's place is drawn for each episode, from a seeded generator: gym-hil draws it from NumPy's global one.

    Args:
        render_mode: how it is drawn, as in other environments.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        os.environ.setdefault("MUJOCO_GL", "osmesa")
        importlib.import_module("gym_hil")
        options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        env = gymnasium.make(
            "gym_hil/PandaPickCubeBase-v0",
            image_obs=False,
            reward_type="sparse",
            random_block_position=True,
            disable_env_checker=True,
            **options,
        )
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (24,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        np.random.seed(int(self._rng.integers(2**32)))  # noqa: NPY002, read by gym-hil
        obs, info = self.env.reset(seed=seed)
        return encode(obs["agent_pos"], obs["environment_state"]), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        move = np.zeros(7)
        move[:3], move[6] = np.asarray(action[:3]) * REACH_M, action[3]
        obs, reward, terminated, truncated, info = self.env.step(move)
        seen = encode(obs["agent_pos"], obs["environment_state"])
        return seen, reward, terminated, truncated, {**info, "success": bool(info["succeed"])}
