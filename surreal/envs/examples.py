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
