"""Exploration of discrete actions: epsilon-greedy over a whole batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

#: From the step to the exploration rate in 0..1, or to one rate for each environment of the agent.
Exploration = Callable[[int], "float | NDArray[np.float64]"]

_BLOCK = 4096


class EpsilonGreedy:
    """Replaces each action, with probability epsilon, by one drawn uniformly from all actions.

    Random numbers are drawn in blocks, because a draw for every step costs more than the choice.

    Args:
        num_actions: actions are 0 .. num_actions - 1.
        rng: draws everything.
    """

    def __init__(self, num_actions: int, rng: np.random.Generator) -> None:
        if num_actions < 1:
            raise ValueError(f"num_actions is {num_actions}; it must be >= 1")
        self._num_actions = num_actions
        self._rng = rng
        self._place = 0
        self._draws: NDArray[np.float64] = np.empty(0)
        self._random: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def choose(
        self,
        greedy: NDArray[np.int64],
        epsilon: float | NDArray[np.float64],
        explore: NDArray[np.bool_],
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Return the actions to take, written into `greedy`.

        Args:
            greedy: [N] the best action of each row.
            epsilon: probability of a random action in 0..1, for all rows or [N]; more explores more.
            explore: [N] rows that may explore; the others keep their greedy action.
            action_mask: [N, num_actions] legal actions; a random one is legal if any is.
        """
        start = self._place
        end = start + len(greedy)
        if end > len(self._draws):
            start, end = self._refill(len(greedy))
        self._place = end
        replaced = self._draws[start:end] < epsilon
        replaced &= explore
        random = self._random[start:end] if action_mask is None else self._legal(action_mask)
        np.copyto(greedy, random, where=replaced)
        return greedy

    def _refill(self, count: int) -> tuple[int, int]:
        size = max(_BLOCK, count)
        self._draws = self._rng.random(size)
        self._random = self._rng.integers(self._num_actions, size=size)
        return 0, count

    def _legal(self, action_mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        # The largest of independent uniform numbers is at each legal place equally often.
        ranks = self._rng.random(action_mask.shape)
        ranks[~action_mask] = -1.0
        random: NDArray[np.int64] = ranks.argmax(axis=1)
        return random
