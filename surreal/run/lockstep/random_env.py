"""`RandomEnv`: an environment of given spaces whose observations and rewards are random, for trying a run's classes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from surreal.base import tree

#: Larger numbers, which spaces without true bounds allow, are drawn again from a normal distribution.
_LARGEST = 1e6
_END_SHARE = 0.1


class RandomEnv(gymnasium.Env[Any, Any]):
    """Draws observations from a space. A tenth of the steps end their episode, half of these by truncation.

    Args:
        observation_space: observation space of the environment whose place it takes.
        action_space: action space of that environment.
    """

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        end = self.np_random.random() / _END_SHARE
        return self._observe(), float(self.np_random.normal()), end < 0.5, 0.5 <= end < 1.0, {}

    def _observe(self) -> Any:
        return tree.map_leaves(self._bounded, self.observation_space.sample())

    def _bounded(self, leaf: Any) -> Any:
        leaf = np.asarray(leaf)
        if leaf.dtype.kind != "f":
            return leaf
        with np.errstate(invalid="ignore"):
            is_usable = np.abs(leaf) < _LARGEST
        return np.where(is_usable, leaf, self.np_random.normal(size=leaf.shape)).astype(leaf.dtype)
