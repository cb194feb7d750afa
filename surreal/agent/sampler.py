"""`Sampler`: explores by the policy itself: rows that explore take a sample of it, all others its mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.slots import SlotMemory
from surreal.base.ranges import ShareBelowOne, checked
from surreal.model import Distribution
from surreal.model.distributions import Normal
from surreal.model.in_numpy import NumpyNormal, NumpyPolicy


class Sampler:
    """Chooses actions by distributions over them.

    Args:
        rng: seeds the samples.
        noise_correlation: correlation of the samples of a normal policy from one step of an episode to the next. Each
            sample alone has the policy's distribution, but successive ones stay on the same side of the mean for longer
            (Hollenstein et al. 2024, arXiv:2312.11091). 0: independent samples.
    """

    @checked
    def __init__(self, rng: np.random.Generator, *, noise_correlation: ShareBelowOne = 0.0) -> None:
        self._seed = int(rng.integers(2**63))
        self._generator: torch.Generator | None = None
        self._correlation = noise_correlation
        self._noise: SlotMemory | None = None

    def seed(self, seed: int) -> None:
        """Begin another sequence of samples."""
        self._seed = seed
        self._generator = None

    def choose(
        self,
        policy: Distribution | NumpyPolicy,
        explore: NDArray[np.bool_],
        device: torch.device,
        slots: NDArray[np.int64],
        is_first: NDArray[np.bool_],
    ) -> Any:
        """Choose one action for each row.

        Args:
            policy: over the actions of N rows.
            explore: [N] rows that may explore.
            device: device of the policy's tensors, which never changes.
            slots: [N] slot of each row, >= 0.
            is_first: [N] rows that begin an episode.

        Returns:
            [N, *action_shape] tensor, or array of a `NumpyPolicy`.

        Raises:
            ValueError: samples should be correlated, but actions are not those of a normal policy.
        """
        count = np.count_nonzero(explore)  # a fifth of the time that `any` and `all` take each
        if not count:
            return policy.mode()
        if self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        action: Any = (
            self._correlated(policy, device, slots, is_first) if self._correlation else policy.sample(self._generator)
        )
        if count < len(explore):
            action[~explore] = policy.mode()[~explore]
        return action

    def _correlated(
        self,
        policy: Distribution | NumpyPolicy,
        device: torch.device,
        slots: NDArray[np.int64],
        is_first: NDArray[np.bool_],
    ) -> Any:
        if not isinstance(policy, Normal | NumpyNormal):
            raise ValueError(f"noise_correlation is set, but the policy is a {type(policy).__name__} and not normal")
        fresh = torch.empty(policy.mean.shape, device=device).normal_(generator=self._generator)
        if self._noise is None:
            self._noise = SlotMemory(tuple(fresh.shape[1:]), fresh.device)
        before = self._noise.take(slots, is_first)
        noise = self._correlation * before + math.sqrt(1.0 - self._correlation**2) * fresh
        if is_first.any():
            begins = torch.from_numpy(is_first)
            noise[begins] = fresh[begins]
        self._noise.put(slots, noise)
        return policy.at(noise)
