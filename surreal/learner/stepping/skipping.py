"""`SkipCounter`: updates that were skipped, because their gradients were not finite, and when that is too much."""

from __future__ import annotations

import math

from torch import Tensor

from surreal.base.errors import DivergedError


class SkipCounter:
    """Counts on the gradients' own device, and waits for it only when it is asked: once in a while on a GPU.

    An update is skipped if none of its steps of some group of parameters was finite.

    Args:
        limit: skipped updates in a row that show that the learner has diverged, >= 1.
    """

    def __init__(self, limit: int) -> None:
        self._before = 0  # skipped by earlier processes of the run
        self._limit = limit
        self._updates = 0
        self._total: Tensor | int = 0
        self._finite: dict[str, Tensor | bool] = {}  # whether a step of the running update was, by group
        self._streaks: dict[str, Tensor | int] = {}

    @property
    def total(self) -> int:
        """Skipped in the run; waits for the device."""
        return self._before + int(self._total)

    def restore(self, total: int) -> None:
        """Continue from the total of a checkpoint; the count never goes back."""
        self._before = max(self._before, total - int(self._total))

    def note(self, group: str, norm: Tensor) -> None:
        """Take note of a step.

        Args:
            group: of parameters.
            norm: of its gradients, a scalar: if it is not finite, the step was skipped.
        """
        is_finite = norm.isfinite() if norm.is_cuda else math.isfinite(norm)
        self._finite[group] = self._finite.get(group, False) | is_finite

    def end_update(self) -> None:
        """Count the update whose steps were noted."""
        is_skipped: Tensor | bool = False
        for group, is_finite in self._finite.items():
            self._streaks[group] = (self._streaks.get(group, 0) + 1) * (is_finite ^ True)
            is_skipped = is_skipped | (is_finite ^ True)
        self._updates += bool(self._finite)
        self._total = self._total + is_skipped
        self._finite.clear()

    def check(self) -> None:
        """Read how many were skipped last.

        Raises:
            DivergedError: the limit of skipped updates in a row is reached.
        """
        streak = max((int(each) for each in self._streaks.values()), default=0)
        if streak >= self._limit:
            self._streaks.clear()  # a learner that went back begins to count again
            raise DivergedError(
                f"the gradients of {streak} updates in a row are not finite: lower the learning rate, clip gradients"
                " (gradients_norm_clipping), or look at what observations and rewards hold"
            )

    def check_all(self) -> None:
        """Look at all updates of this process.

        Raises:
            DivergedError: there were some, and all of them were skipped.
        """
        if self._updates and int(self._total) == self._updates:
            raise DivergedError(
                f"none of {self._updates} updates had finite gradients: lower the learning rate, clip gradients"
                " (gradients_norm_clipping), or look at what observations and rewards hold"
            )
