"""Random actions: epsilon-greedy over a whole batch, and uniform actions in the first env steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.ranges import NonNegativeInt, PositiveInt, checked

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

    @checked
    def __init__(self, num_actions: PositiveInt, rng: np.random.Generator) -> None:
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


class RandomStart:
    """Replaces actions while the run is young.

    Args:
        action_space: Discrete from 0, or a Box with finite bounds.
        steps: env steps of the run during which actions are random; raising it explores longer before the policy acts.
        rng: draws the actions.
    """

    @checked
    def __init__(self, action_space: gymnasium.Space[Any], steps: NonNegativeInt, rng: np.random.Generator) -> None:
        self._steps = steps
        self._rng = rng
        self._chooser: EpsilonGreedy | None = None
        if isinstance(action_space, spaces.Discrete):
            self._chooser = EpsilonGreedy(int(action_space.n), rng)
        elif isinstance(action_space, spaces.Box) and action_space.is_bounded():
            self._low, self._high = action_space.low, action_space.high
        else:
            raise ValueError(f"actions are {action_space}; use Discrete, or a Box with finite bounds")

    def replace(
        self,
        actions: NDArray[Any],
        explore: NDArray[np.bool_],
        step: int,
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[Any]:
        """Return the actions to take, written into `actions`.

        Args:
            actions: [N, *action_shape] that the policy would take.
            explore: [N] rows that may explore.
            step: env step of the run.
            action_mask: [N, n] legal discrete actions.
        """
        if step >= self._steps or not explore.any():
            return actions
        if self._chooser is not None:
            return self._chooser.choose(actions, 1.0, explore, action_mask)
        random = self._rng.uniform(self._low, self._high, actions.shape)
        np.copyto(actions, random, where=explore[:, None], casting="same_kind")
        return actions
