"""`RandomStart`: uniformly random actions in the first env steps, so that a replay begins with some of everything."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.agent.exploring.epsilon_greedy import EpsilonGreedy


class RandomStart:
    """Replaces actions while the run is young.

    Args:
        action_space: Discrete from 0, or a Box with finite bounds.
        steps: env steps of the run during which actions are random, >= 0; more explores longer before anything is
            tried that was learned.
        rng: draws the actions.
    """

    def __init__(self, action_space: gymnasium.Space[Any], steps: int, rng: np.random.Generator) -> None:
        if steps < 0:
            raise ValueError(f"random_steps is {steps}; it must be >= 0")
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
