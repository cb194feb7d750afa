"""`RunningReturns`: the discounted return of each episode so far, which filters of rewards count."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.slots import SlotMemory

#: Column in which agents record it, if the model scales rewards.
CARRIED_RETURN = "carried_return"


class RunningReturns:
    """Adds up the rewards of a pool's episodes.

    Args:
        gamma: discount, in [0, 1].
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._memory = SlotMemory((), torch.device("cpu"))

    def carry(self, slots: NDArray[np.int64], is_first: NDArray[np.bool_], reward: NDArray[Any]) -> NDArray[Any]:
        """Return what the rewards before a step add to its return: `gamma * (return of the step before)`.

        Args:
            slots: [N] each >= 0.
            is_first: [N] rows that begin an episode, before which there is nothing.
            reward: [N] of the step before.

        Returns:
            [N] float32.
        """
        carried = self._gamma * (self._memory.take(slots, is_first) + torch.from_numpy(reward).to(torch.float32))
        carried[torch.from_numpy(is_first)] = 0.0
        self._memory.put(slots, carried)
        return carried.numpy()
