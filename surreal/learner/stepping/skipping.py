"""`SkipCounter`: updates that were skipped, for their gradient was not finite, and when that is too much."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from surreal.errors import DivergedError

#: Updates that may be skipped one after the other.
MOST_IN_A_ROW = 50


class SkipCounter:
    """Counts on the gradients' own device, and waits for it only when it is asked: once in a while on a GPU."""

    def __init__(self) -> None:
        self._total: Tensor | float = 0.0
        self._streak: Tensor | float = 0.0

    @property
    def total(self) -> int:
        """Skipped so far; waits for the device."""
        return int(self._total)

    def note(self, norm: Tensor) -> None:
        """Take note of an update.

        Args:
            norm: of its gradients, a scalar: if it is not finite, the update was skipped.
        """
        is_skipped: Tensor | float
        is_skipped = (~norm.isfinite()).to(torch.float32) if norm.is_cuda else float(not math.isfinite(norm))
        self._total = self._total + is_skipped
        self._streak = (self._streak + 1.0) * is_skipped

    def check(self) -> None:
        """Read how many were skipped last.

        Raises:
            DivergedError: more than `MOST_IN_A_ROW` updates were skipped, and none between them was not.
        """
        streak = int(self._streak)
        if streak > MOST_IN_A_ROW:
            self._streak = 0.0  # who goes on all the same begins to count anew
            raise DivergedError(
                f"the gradients of {streak} updates in a row are not finite: lower the learning rate, clip gradients"
                " (gradients_norm_clipping), or look at what observations and rewards hold"
            )
