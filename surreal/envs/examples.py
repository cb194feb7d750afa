"""Small environments for presets and tests; registered by `import surreal.envs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray


class CartPoleDict(gymnasium.ObservationWrapper[dict[str, NDArray[np.float32]], Any, Any]):
    """CartPole with a `Dict` observation; takes the arguments of gymnasium's CartPoleEnv.

    "position" is (cart position in m, pole angle in rad), "velocity" their rates: both [2] float32.
    """

    def __init__(self, **kwargs: Any) -> None:
        env = CartPoleEnv(**kwargs)
        super().__init__(env)
        whole: Any = env.observation_space
        low, high = whole.low, whole.high
        parts: dict[str, gymnasium.Space[Any]]
        parts = {"position": spaces.Box(low[::2], high[::2]), "velocity": spaces.Box(low[1::2], high[1::2])}
        self.observation_space = cast("Any", spaces.Dict(parts))

    def observation(self, observation: Any) -> dict[str, NDArray[np.float32]]:
        return {"position": observation[::2].copy(), "velocity": observation[1::2].copy()}


class CartPoleNovel(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """CartPole without velocities, so that a policy needs memory; takes the arguments of gymnasium's CartPoleEnv.

    An observation is the cart's position in m and the pole's angle in rad: [2] float32.
    """

    def __init__(self, **kwargs: Any) -> None:
        env = CartPoleEnv(**kwargs)
        super().__init__(env)
        whole: Any = env.observation_space
        self.observation_space = spaces.Box(whole.low[::2], whole.high[::2])

    def observation(self, observation: Any) -> NDArray[np.float32]:
        shown: NDArray[np.float32] = observation[::2].copy()
        return shown


class Bandit(gymnasium.Env[NDArray[np.float32], np.int64]):
    """A bandit with several arms: an episode is one pull, which pays 1 with the arm's probability, else 0.

    The observation is always [1.0], float32.

    Args:
        probabilities: the chance that each arm pays, in [0, 1].
    """

    def __init__(self, probabilities: Sequence[float] = (0.2, 0.4, 0.6, 0.8)) -> None:
        if not probabilities or not all(0.0 <= p <= 1.0 for p in probabilities):
            raise ValueError(f"probabilities is {list(probabilities)}; each arm needs one in [0, 1]")
        self.probabilities = tuple(probabilities)
        self.observation_space = spaces.Box(0.0, 1.0, (1,))
        self.action_space = spaces.Discrete(len(self.probabilities))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        reward = float(self.np_random.random() < self.probabilities[action])
        return np.ones(1, np.float32), reward, True, False, {}


class BitFlip(gymnasium.Env[dict[str, NDArray[np.float32]], np.int64]):
    """Bits that must become those of a goal, one flip at a time: without hindsight, a goal is almost never reached.

    "observation", "achieved_goal" and "desired_goal" are [n] float32 of 0 and 1; the first two are the same. Action i
    flips bit i. The reward is -1, and 0 for the step that reaches the goal, which ends the episode; n steps cut it.
    Andrychowicz et al. 2017, arXiv:1707.01495, section 3.1.

    Args:
        n: number of bits, and of steps in an episode, >= 1.
    """

    def __init__(self, n: int = 10) -> None:
        if n < 1:
            raise ValueError(f"n is {n}; it must be >= 1")
        self.n = n
        bits = spaces.Box(0.0, 1.0, (n,))
        self.observation_space = cast(
            "Any", spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
        )
        self.action_space = spaces.Discrete(n)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
        super().reset(seed=seed)
        self._bits, self._goal = self.np_random.integers(0, 2, (2, self.n)).astype(np.float32)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[dict[str, NDArray[np.float32]], float, bool, bool, dict[str, Any]]:
        self._bits[action] = 1.0 - self._bits[action]
        self._steps += 1
        is_success = bool(self.compute_terminated(self._bits, self._goal, {}))
        reward = float(self.compute_reward(self._bits, self._goal, {}))
        is_cut = self._steps >= self.n and not is_success
        return self._observe(), reward, is_success, is_cut, {"is_success": is_success}

    def compute_reward(self, achieved_goal: NDArray[Any], desired_goal: NDArray[Any], info: Any) -> NDArray[np.float32]:
        """Rewards [...] of goals [..., n]: 0 where they are equal, else -1."""
        return np.where(self.compute_terminated(achieved_goal, desired_goal, info), np.float32(0.0), np.float32(-1.0))

    def compute_terminated(
        self, achieved_goal: NDArray[Any], desired_goal: NDArray[Any], info: Any
    ) -> NDArray[np.bool_]:
        """Compare goals [..., n]: [...] True where they are equal."""
        are_equal: NDArray[np.bool_] = np.all(achieved_goal == desired_goal, axis=-1)
        return are_equal

    def _observe(self) -> dict[str, NDArray[np.float32]]:
        return {"observation": self._bits.copy(), "achieved_goal": self._bits.copy(), "desired_goal": self._goal.copy()}
