"""Rules that turn the gradients of many agents into steps: pure functions, on tensors by `group/name`.

fifo   each gradient is a step
avg    the mean of N gradients is one step, as of one batch that joins their batches
dc     each gradient is a step, corrected for the parameters having moved since it was computed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from surreal.base.ranges import PositiveInt, checked


class Mean:
    """Gathers gradients until there are enough for a mean."""

    @checked
    def __init__(self, number: PositiveInt) -> None:
        self._number = number
        self._count = 0
        self._sums: dict[str, Tensor] = {}

    def add(self, gradient: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Take a gradient, which is not changed; returns the mean once it is complete, and starts again.

        A tensor that some gradients lack counts as zero there.
        """
        for name, tensor in gradient.items():
            if name in self._sums:
                self._sums[name] += tensor
            else:
                self._sums[name] = tensor.clone()
        self._count += 1
        if self._count < self._number:
            return None
        mean = {name: total.div_(self._number) for name, total in self._sums.items()}
        self.clear()
        return mean

    def clear(self) -> None:
        """Drop the incomplete mean."""
        self._count = 0
        self._sums = {}


def compensate(gradient: Tensor, now: Tensor, then: Tensor, dc_lambda: float) -> Tensor:
    """Correct a gradient computed at `then` to an approximate one at `now`: `g + lambda g g (now - then)`.

    Zheng et al. 2017 eq. 10, arXiv:1609.08326: the square of the gradient stands for the diagonal of the Hessian. All
    have one shape, and `dc_lambda` >= 0; 0 leaves the gradient unchanged.
    """
    return torch.addcmul(gradient, gradient * gradient, now - then, value=dc_lambda)


class _Former(NamedTuple):
    version: int
    update: int
    parameters: dict[str, Tensor]


class History:
    """Parameters as they were published, for as many updates."""

    @checked
    def __init__(self, updates: PositiveInt) -> None:
        self._updates = updates
        self._former: deque[_Former] = deque()

    def add(self, version: int, update: int, parameters: Mapping[str, Tensor]) -> None:
        """Remember copies of parameters, published under `version` after `update` updates."""
        copies = {name: tensor.detach().clone() for name, tensor in parameters.items()}
        self._former.append(_Former(version, update, copies))
        self.forget(update)

    def forget(self, update: int) -> None:
        """Drop parameters that are too old after `update` updates, except the newest."""
        while len(self._former) > 1 and self._former[0].update < update - self._updates:
            self._former.popleft()

    def at(self, version: int) -> Mapping[str, Tensor] | None:
        """Parameters of a version, or of the oldest that is remembered if that is newer; None without any."""
        found = None
        for former in self._former:
            if found is None or former.version <= version:
                found = former
        return found.parameters if found else None

    def clear(self) -> None:
        self._former.clear()
