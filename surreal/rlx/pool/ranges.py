"""Which numbers are taken from clients: a single bad one can undo a whole run.

A value that is not finite, in one row of one batch, makes every parameter of the network nan for good, and a finite
one does so as soon as its square is not: norms, running filters and the optimizer's second moments square what they
get. So each entrance checks, and an episode with such a value is cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.rlx.protocol.errors import RlxValueError
from surreal.specs import ArraySpec

#: What a bound may be exceeded by, as a multiple of its size, where that is over 1: clients round in other ways.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class ValueLimits:
    """Magnitudes of the largest values.

    Attributes:
        observation: of floats for which their space has no smaller bound, > 0. The square of 1e18, summed over a
            hundred of them, is still a float32; no sensor shows more.
        reward: > 0. The square of 1e9 times a hundred thousand steps, what a return and its gradient come to, is a
            float32 with room to spare.
    """

    observation: float = 1e18
    reward: float = 1e9

    def __post_init__(self) -> None:
        largest = float(np.finfo(np.float32).max)
        for name, value in (("observation", self.observation), ("reward", self.reward)):
            if not 0 < value <= largest:
                raise ValueError(f"the largest {name} is {value}; it must be > 0 and a float32")


DEFAULT_LIMITS = ValueLimits()


class Range:
    """The values that one leaf of an observation may have.

    Args:
        leaf: the array.
        low, high: its bounds, inclusive, of its shape or scalars.
    """

    __slots__ = ("_high", "_is_uniform", "_leaf", "_low")

    def __init__(self, leaf: ArraySpec, low: NDArray[Any], high: NDArray[Any]) -> None:
        self._leaf = leaf
        # Most spaces have one bound for all: two reductions cost less than two comparisons.
        self._is_uniform = low.size > 0 and bool((low == low.flat[0]).all() and (high == high.flat[0]).all())
        self._low: Any = low.flat[0] if self._is_uniform else low
        self._high: Any = high.flat[0] if self._is_uniform else high

    def holds(self, array: NDArray[Any]) -> bool:
        """Whether all values, [..., *shape] of any number of observations, are in the range; nan is not."""
        if not array.size:
            return True
        if self._is_uniform:
            return bool(array.min() >= self._low and array.max() <= self._high)
        return bool(self._good(array).all())

    def bad_rows(self, batch: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Tell which observations of a batch [n, *shape] have a value out of the range, as bool [n]; None: none has."""
        if self.holds(batch):
            return None
        good: NDArray[np.bool_] = np.all(self._good(batch).reshape(len(batch), -1), axis=1)
        return ~good

    def check(self, array: NDArray[Any], sent: NDArray[Any] | None = None) -> None:
        """Check one observation's leaf.

        Args:
            array: [*shape], in the leaf's dtype.
            sent: the same values as the client sent them, to be named.

        Raises:
            RlxValueError: a value is out of the range; names it.
        """
        if not self.holds(array):
            raise self.error(array, sent)

    def error(self, array: NDArray[Any], sent: NDArray[Any] | None = None) -> RlxValueError:
        """Name the first bad value of one observation's leaf."""
        index = int(np.argmin(self._good(array)))  # the first False
        low, high = (np.broadcast_to(bound, array.shape).flat[index] for bound in (self._low, self._high))
        value = (array if sent is None else sent).flat[index]
        where = f"state {self._leaf.name}" if self._leaf.name else "the state"
        place = f"{where}[{', '.join(map(str, np.unravel_index(index, array.shape)))}]" if array.ndim else where
        must_be = f"{'finite, and ' if array.dtype.kind == 'f' else ''}from {low:.6g} to {high:.6g}"
        return RlxValueError(f"{place} is {value}; it must be {must_be}", leaf=where, value=float(value))

    def _good(self, array: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((array >= self._low) & (array <= self._high))


def range_of(space: gymnasium.Space[Any], leaf: ArraySpec, limits: ValueLimits) -> Range | None:
    """Give the range of a leaf; None: its dtype holds nothing else."""
    if isinstance(space, spaces.Discrete):
        return Range(leaf, np.asarray(space.start, np.int64), np.asarray(space.start + space.n - 1, np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start, np.int64)
        return Range(leaf, start, start + np.asarray(space.nvec, np.int64) - 1)
    if isinstance(space, spaces.MultiBinary):
        return Range(leaf, np.asarray(0), np.asarray(1))
    if not isinstance(space, spaces.Box) or leaf.dtype.kind == "b":
        return None
    if leaf.dtype.kind == "f":
        return _float_range(leaf, space.low, space.high, limits)
    info = np.iinfo(leaf.dtype)
    if (space.low <= info.min).all() and (space.high >= info.max).all():
        return None
    return Range(leaf, np.asarray(space.low), np.asarray(space.high))


def widest_range(leaf: ArraySpec, limits: ValueLimits) -> Range | None:
    """Give the range of a leaf without bounds of its own; None: its dtype holds nothing else."""
    return _float_range(leaf, -np.inf, np.inf, limits) if leaf.dtype.kind == "f" else None


def _float_range(leaf: ArraySpec, low: Any, high: Any, limits: ValueLimits) -> Range:
    # A bound beyond the limit, such as the largest float32, is as good as none; float16 has a limit of its own.
    largest = min(limits.observation, float(np.finfo(leaf.dtype).max))
    bounds = []
    for bound, sign in ((low, -1.0), (high, 1.0)):
        wide = np.clip(np.asarray(bound, np.float64), -largest, largest)
        slack = sign * _TOLERANCE * np.maximum(1.0, np.abs(wide))
        bounds.append(np.clip(wide + slack, -largest, largest).astype(leaf.dtype))
    return Range(leaf, bounds[0], bounds[1])
