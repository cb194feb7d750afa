"""Shows an environment's last action and reward next to its observation, as R2D2 wants it (Kapturowski et al. 2019).

Agents, learners and evaluation all see them, because they are part of the observation.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

AnyEnv = gymnasium.Env[Any, Any]


class LastStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the last action and reward to observations; both are 0 in the first step of an episode.

    Observations become a `Dict` of `obs` (or of the entries that they have), `last_action` [n] float32, in which
    discrete actions are one-hot, and `last_reward` [1] float32.

    Args:
        env: what it is put around.
        reward_limit: rewards are clipped to -limit..limit, > 0; raising it shows larger ones, which networks with raw
            inputs learn worse from.
    """

    def __init__(self, env: AnyEnv, reward_limit: float = 1.0) -> None:
        if not 0.0 < reward_limit < np.inf:
            raise ValueError(f"reward_limit is {reward_limit}; it must be > 0 and finite")
        super().__init__(env)
        self._limit = reward_limit
        space = env.observation_space
        entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
        self._is_dict = isinstance(space, spaces.Dict)
        if taken := entries.keys() & {"last_action", "last_reward"}:
            raise ValueError(f"its observations have {', '.join(sorted(taken))} already")
        width = spaces.utils.flatdim(env.action_space)
        entries["last_action"] = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        entries["last_reward"] = spaces.Box(-reward_limit, reward_limit, (1,), np.float32)
        self.observation_space = spaces.Dict(entries)
        self._no_action = np.zeros(width, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = super().reset(seed=seed, options=options)
        return self._extended(obs, self._no_action, 0.0), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and show the action and the reward with what came of them."""
        obs, reward, terminated, truncated, info = super().step(action)
        shown = np.asarray(spaces.utils.flatten(self.env.action_space, action), np.float32)
        return self._extended(obs, shown, float(reward)), reward, terminated, truncated, info

    def _extended(self, obs: Any, action: np.ndarray[Any, Any], reward: float) -> dict[str, Any]:
        clipped = np.array([min(max(reward, -self._limit), self._limit)], np.float32)
        entries = obs if self._is_dict else {"obs": obs}
        return {**entries, "last_action": action, "last_reward": clipped}
