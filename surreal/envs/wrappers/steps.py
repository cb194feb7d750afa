"""Wrappers that change rewards, add the last step to observations, stagger episodes, or count raw returns."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.ranges import Positive, PositiveInt, checked

AnyEnv = gymnasium.Env[Any, Any]


class RewardClip(gymnasium.RewardWrapper[Any, Any]):
    """Clips rewards to low..high.

    Args:
        low: least reward, <= `high`.
        high: largest reward; raising it keeps more of the difference between rewards, and gives large ones more weight.
    """

    def __init__(self, env: AnyEnv, low: float = -1.0, high: float = 1.0) -> None:
        if not low <= high:
            raise ValueError(f"low is {low}, high is {high}; low must not be larger")
        super().__init__(env)
        self._low, self._high = float(low), float(high)

    def reward(self, reward: SupportsFloat) -> float:
        return min(max(float(reward), self._low), self._high)


class RewardScale(gymnasium.RewardWrapper[Any, Any]):
    """Multiplies rewards by `scale`.

    Args:
        scale: factor; choose it so that returns are near 1, where default learning rates work.
    """

    def __init__(self, env: AnyEnv, scale: float) -> None:
        super().__init__(env)
        self._scale = float(scale)

    def reward(self, reward: SupportsFloat) -> float:
        return float(reward) * self._scale


class RewardSign(gymnasium.RewardWrapper[Any, Any]):
    """Keeps only the sign of rewards, as DQN does for Atari (Mnih et al. 2015)."""

    def reward(self, reward: SupportsFloat) -> float:
        return float(np.sign(float(reward)))


class Stagger(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts the first episode at a random step, so that the environments of an agent are at different steps.

    Otherwise, if all episodes have the same length, all short trajectories of a batch would be from the same part of an
    episode.

    Args:
        steps: the most steps of a first episode; the length of a full episode spreads the environments evenly.
    """

    @checked
    def __init__(self, env: AnyEnv, steps: PositiveInt) -> None:
        super().__init__(env)
        self._steps = steps
        self._left = 0
        self._has_begun = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        found = super().reset(seed=seed, options=options)
        # dm_control has an old RandomState with `random` but without `integers`.
        self._left = 0 if self._has_begun else 1 + int(self.np_random.random() * self._steps)
        return found

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        self._has_begun = True
        if self._left:
            self._left -= 1
            truncated = truncated or self._left == 0
        return obs, reward, terminated, truncated, info


class LastStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the last action and reward to observations, as in R2D2 (Kapturowski et al. 2019); both begin with 0.

    Observations become a `Dict` of `obs` (or of their entries), `last_action` [n] float32, in which discrete actions
    are one-hot, and `last_reward` [1] float32.

    Args:
        reward_limit: rewards are clipped to -limit..limit; raising it shows larger rewards, from which networks with
            raw inputs learn less well.
    """

    @checked
    def __init__(self, env: AnyEnv, reward_limit: Positive = 1.0) -> None:
        if reward_limit == np.inf:
            raise ValueError(f"reward_limit is {reward_limit}; it must be finite")
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
        obs, info = super().reset(seed=seed, options=options)
        return self._extended(obs, self._no_action, 0.0), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        shown = np.asarray(spaces.utils.flatten(self.env.action_space, action), np.float32)
        return self._extended(obs, shown, float(reward)), reward, terminated, truncated, info

    def _extended(self, obs: Any, action: np.ndarray[Any, Any], reward: float) -> dict[str, Any]:
        clipped = np.array([min(max(reward, -self._limit), self._limit)], np.float32)
        entries = obs if self._is_dict else {"obs": obs}
        return {**entries, "last_action": action, "last_reward": clipped}


class RawEpisodeMonitor(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sums the raw rewards of an environment for the pool, below the wrappers that change rewards or cut episodes.

    An episode counts when this environment ends, or is reset before its end.
    """

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self._return = 0.0
        self._length = 0
        self._finished: tuple[float, int] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._finish()
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._return += float(result[1])
        self._length += 1
        if result[2] or result[3]:
            self._finish()
        return result

    def take_episode(self) -> tuple[float, int] | None:
        """Return (return, length) of the episode that ended since the last call, if any."""
        finished, self._finished = self._finished, None
        return finished

    def _finish(self) -> None:
        if self._length:
            self._finished = (self._return, self._length)
        self._return, self._length = 0.0, 0


def find_monitor(env: AnyEnv) -> RawEpisodeMonitor | None:
    """Find the monitor in a chain of gymnasium wrappers."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, RawEpisodeMonitor):
            return layer
        layer = layer.env
    return None
