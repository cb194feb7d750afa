"""The bandit: four arms, each of which pays 1 or -1."""

from __future__ import annotations

import random

#: A pull pays 1 if a number drawn from a normal distribution is above the arm's, else -1: the last arm is best.
ARMS = (0.2, 0.0, -0.2, -0.5)


class Bandit:
    """Arms to pull.

    Args:
        seed: seed of the draws; None: random.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._rng = random.Random(seed)

    def pull(self, arm: int) -> float:
        """Pull an arm, 0 to 3; returns 1.0 or -1.0."""
        return 1.0 if self._rng.gauss(0.0, 1.0) > ARMS[arm] else -1.0
