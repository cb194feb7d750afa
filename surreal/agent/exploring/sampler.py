"""`Sampler`: explores by the policy itself: rows that explore take a sample of it, all others its mode."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal.model import Distribution


class Sampler:
    """Chooses actions by distributions over them.

    Args:
        rng: seeds the samples.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._seed = int(rng.integers(2**63))
        self._generator: torch.Generator | None = None

    def choose(self, policy: Distribution, explore: NDArray[np.bool_], device: torch.device) -> Tensor:
        """Choose one action for each row.

        Args:
            policy: over the actions of N rows.
            explore: [N] rows that may explore.
            device: where the policy's tensors are, the same at all times.

        Returns:
            [N, *action_shape]
        """
        if not explore.any():
            return policy.mode()
        if self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        action = policy.sample(self._generator)
        if not explore.all():
            greedy = torch.from_numpy(~explore)
            action[greedy] = policy.mode()[greedy]
        return action
