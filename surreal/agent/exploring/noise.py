"""Noise that deterministic policies explore by: of one component of an action scaled to [-1, 1]."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.slots import SlotMemory

#: Standard deviation for all rows, or [N, 1], one for each.
Sigma = float | NDArray[np.float64]


class ActionNoise(ABC):
    """Noise that is added to actions.

    Args:
        num_components: number of components of an action, >= 1.
        rng: draws everything.
    """

    def __init__(self, num_components: int, rng: np.random.Generator) -> None:
        self._num_components = num_components
        self._rng = rng

    @abstractmethod
    def draw(self, sigma: Sigma, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Draw the noise of a turn, [N, num_components].

        Args:
            sigma: how much.
            slots: [N] slot of each row, >= 0.
            is_first: [N] rows that begin an episode.
        """


class GaussianNoise(ActionNoise):
    """Independent from step to step: N(0, sigma) (Fujimoto et al. 2018, arXiv:1802.09477)."""

    def draw(self, sigma: Sigma, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> NDArray[np.float64]:
        return sigma * self._rng.standard_normal((len(slots), self._num_components))


class OrnsteinUhlenbeckNoise(ActionNoise):
    """Correlated from step to step: x += sigma * N(0, 1) - theta * x (Lillicrap et al. 2016, arXiv:1509.02971).

    Each slot has its own x, which begins at 0 with each episode. Its standard deviation grows to
    sigma / sqrt(2 theta - theta^2).

    Args:
        num_components: number of components of an action, >= 1.
        rng: draws everything.
        theta: pull toward 0 in each step, in (0, 1]; lowering it keeps the noise in one direction for longer.
    """

    def __init__(self, num_components: int, rng: np.random.Generator, theta: float = 0.15) -> None:
        super().__init__(num_components, rng)
        if not 0.0 < theta <= 1.0:
            raise ValueError(f"noise_theta is {theta}; it must be in (0, 1]")
        self._theta = theta
        self._memory = SlotMemory((num_components,), torch.device("cpu"))

    def draw(self, sigma: Sigma, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> NDArray[np.float64]:
        before = self._memory.take(slots, is_first).numpy()
        after = (1.0 - self._theta) * before + sigma * self._rng.standard_normal(before.shape)
        self._memory.put(slots, torch.from_numpy(after).to(torch.float32))
        return after
