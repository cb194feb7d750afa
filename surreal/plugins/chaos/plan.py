"""`Plan`: when a run is disturbed, and how; the same seed gives the same plan. Whom it hits depends on who is alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from surreal.plugins.chaos.disturbances.base import Kind

#: A gap is drawn from an exponential distribution, and kept within these multiples of its mean.
_SHORTEST, _LONGEST = 0.2, 3.0
_LEAST_HOLD = 0.2


class Planned(NamedTuple):
    """One disturbance that is to come."""

    at_s: float  #: since the first may come, s
    kind: Kind
    hold: float  #: how long it lasts, 0.2 .. 1 of the most
    role: float  #: which of the roles it hits, 0 .. 1
    member: float  #: which of those of the role, or of the servers, 0 .. 1


class Plan:
    """Draws disturbances, one after the other.

    Args:
        rng: that draws.
        kinds: each as likely as the others.
        every_s: mean time between two, s.
    """

    def __init__(self, rng: np.random.Generator, kinds: Sequence[Kind], every_s: float) -> None:
        self._rng = rng
        self._kinds = list(kinds)
        self._every_s = every_s

    def next(self, now_s: float) -> Planned:
        """The next one, counted from now, s."""
        gap = float(np.clip(self._rng.exponential(), _SHORTEST, _LONGEST))
        kind = self._kinds[int(self._rng.integers(len(self._kinds)))]
        hold, role, member = self._rng.random(3).tolist()
        return Planned(now_s + gap * self._every_s, kind, _LEAST_HOLD + (1 - _LEAST_HOLD) * hold, role, member)


def pick(options: Sequence[str], draw: float) -> str:
    """One of several, in their order, by a number from 0 to 1."""
    return options[min(int(draw * len(options)), len(options) - 1)]
