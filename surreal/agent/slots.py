"""Memory of an agent for each of its environments, from one step to the next: tensors, and returns so far."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class SlotMemory:
    """One tensor for each slot of a pool: recurrent state, correlated noise. It grows as the pool does."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self._values = torch.zeros((0, *shape), device=device)

    def take(self, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> Tensor:
        """Return a copy [N, *shape] of the tensors of these slots [N], zeros where an episode begins."""
        missing = int(slots.max(initial=-1)) + 1 - len(self._values)
        if missing > 0:
            empty = self._values.new_zeros((max(missing, len(self._values)), *self._values.shape[1:]))
            self._values = torch.cat((self._values, empty))
        taken = self._values[torch.from_numpy(slots)]
        if is_first.any():
            taken[torch.from_numpy(is_first)] = 0.0
        return taken

    def put(self, slots: NDArray[np.int64], values: Tensor) -> None:
        """Keep `values` [N, *shape] for these slots, which were taken before."""
        self._values[torch.from_numpy(slots)] = values


#: Column in which agents record it, if the model scales rewards.
CARRIED_RETURN = "carried_return"


class RunningReturns:
    """Adds up the rewards of a pool's episodes, discounted by `gamma`, in [0, 1]."""

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._memory = SlotMemory((), torch.device("cpu"))

    def carry(self, slots: NDArray[np.int64], is_first: NDArray[np.bool_], reward: NDArray[Any]) -> NDArray[Any]:
        """Return what the rewards [N] before a step add to its return: `gamma * (return of the step before)`, [N]
        float32.

        Nothing comes before a row that begins an episode.
        """
        carried = self._gamma * (self._memory.take(slots, is_first) + torch.from_numpy(reward).to(torch.float32))
        carried[torch.from_numpy(is_first)] = 0.0
        self._memory.put(slots, carried)
        return carried.numpy()
