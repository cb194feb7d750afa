"""Ranges of the numbers that are accepted from clients: a single bad number can ruin a whole run.

A value that is not finite, in one row of one batch, makes every parameter of the network nan for good, and a finite
one does so as soon as its square is not: norms, running filters and the optimizer's second moments square what they
get. So each entrance checks, and an episode with such a value is cut.

The bounds of a space are another matter: the velocities of many an environment leave their `Box` now and then, and do
no harm. Such states are taken, counted, and warned of once, unless they are to be refused.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec
from surreal.base.values import are_within
from surreal.rlx.protocol.errors import RlxValueError

logger = logging.getLogger(__name__)

#: What a bound may be exceeded by, as a multiple of its size, where that is over 1: clients round in other ways.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class ValueLimits:
    """Limits beyond which values are refused."""

    #: magnitude of the largest float in a state, > 0. The square of 1e18, summed over a hundred of them, is still a
    #: float32; no sensor shows more.
    observation: float = 1e18
    #: magnitude of the largest, > 0. The square of 1e9 times a hundred thousand steps, what a return and its gradient
    #: come to, is a float32 with room to spare.
    reward: float = 1e9
    keeps_bounds: bool = False  #: whether numbers outside of the bounds of their `Box` are refused as well

    def __post_init__(self) -> None:
        largest = float(np.finfo(np.float32).max)
        for name, value in (("observation", self.observation), ("reward", self.reward)):
            if not 0 < value <= largest:
                raise ValueError(f"the largest {name} is {value}; it must be > 0 and a float32")


DEFAULT_LIMITS = ValueLimits()


class Departures:
    """Counts the states outside of their bounds that were taken; any thread may note some."""

    def __init__(self) -> None:
        self.count = 0  #: number of such states
        self._lock = threading.Lock()

    def note(self, count: int, first: RlxValueError) -> None:
        """Count states outside of the bounds; `first` describes the problem of one of them."""
        with self._lock:
            is_news, self.count = self.count == 0, self.count + count
        if is_news:
            logger.warning(
                "%s; such states are taken, and counted as rlx/outside_bounds_total "
                "(rlx.outside_bounds: refuse has them refused)", first
            )  # fmt: skip


class Range:
    """The values that one leaf of an observation may have.

    Args:
        low, high: its bounds, inclusive, of its shape or scalars.
        departures: notes values outside of these bounds, which may leave them; None: they may not.
        wide: bounds that apply then; None: those of the dtype.
    """

    __slots__ = ("_departures", "_high", "_is_uniform", "_leaf", "_least", "_low", "_most", "_wide")

    def __init__(
        self,
        leaf: ArraySpec,
        low: NDArray[Any],
        high: NDArray[Any],
        departures: Departures | None = None,
        wide: Range | None = None,
    ) -> None:
        self._leaf = leaf
        self._departures = departures
        self._wide = wide
        # Most spaces have one bound for all: two searches cost less than two comparisons.
        self._is_uniform = low.size > 0 and bool((low == low.flat[0]).all() and (high == high.flat[0]).all())
        self._low: Any = low.flat[0] if self._is_uniform else low
        self._high: Any = high.flat[0] if self._is_uniform else high
        self._least: Any = self._low.item() if self._is_uniform else None
        self._most: Any = self._high.item() if self._is_uniform else None

    def holds(self, array: NDArray[Any]) -> bool:
        """Whether all values, [..., *shape] of any number of observations, are in the range; nan is not."""
        if not array.size:
            return True
        if self._is_uniform:
            return are_within(array, self._least, self._most)
        return bool(self._good(array).all())

    def bad_rows(self, batch: NDArray[Any]) -> NDArray[np.bool_] | None:
        """Return which observations of a batch [n, *shape] must be refused, as bool [n]; None: none."""
        if self.holds(batch):
            return None
        outside: NDArray[np.bool_] = ~np.all(self._good(batch).reshape(len(batch), -1), axis=1)
        if self._departures is None:
            return outside
        bad = None if self._wide is None else self._wide.bad_rows(batch)
        taken = outside if bad is None else outside & ~bad
        if taken.any():
            self._departures.note(int(taken.sum()), self._describe(batch[int(np.argmax(taken))]))
        return bad

    def check(self, array: NDArray[Any], sent: NDArray[Any] | None = None, *, is_noted: bool = True) -> None:
        """Check one observation's leaf [*shape], in the leaf's dtype; `sent` are the values to be named, as the client
        sent them. `is_noted` tells whether to count it where it leaves its bounds and may.
        """
        if self.holds(array):
            return
        if self._departures is None:
            raise self._describe(array, sent)
        if self._wide is not None:
            self._wide.check(array, sent)
        if is_noted:
            self._departures.note(1, self._describe(array, sent))

    def error(self, array: NDArray[Any]) -> RlxValueError:
        return self._describe(array) if self._wide is None else self._wide.error(array)

    def _describe(self, array: NDArray[Any], sent: NDArray[Any] | None = None) -> RlxValueError:
        index = int(np.argmin(self._good(array)))  # the first False
        low, high = (np.broadcast_to(bound, array.shape).flat[index] for bound in (self._low, self._high))
        value = (array if sent is None else sent).flat[index]
        where = f"state {self._leaf.name}" if self._leaf.name else "the state"
        place = f"{where}[{', '.join(map(str, np.unravel_index(index, array.shape)))}]" if array.ndim else where
        must_be = f"{'finite, and ' if array.dtype.kind == 'f' else ''}from {low:.6g} to {high:.6g}"
        return RlxValueError(f"{place} is {value}; it must be {must_be}", leaf=where, value=float(value))

    def _good(self, array: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((array >= self._low) & (array <= self._high))


def range_of(space: gymnasium.Space[Any], leaf: ArraySpec, limits: ValueLimits, departures: Departures) -> Range | None:
    """Return the range of a leaf; None: its dtype holds no other values."""
    if isinstance(space, spaces.Discrete):
        return Range(leaf, np.asarray(space.start, np.int64), np.asarray(space.start + space.n - 1, np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start, np.int64)
        return Range(leaf, start, start + np.asarray(space.nvec, np.int64) - 1)
    if isinstance(space, spaces.MultiBinary):
        return Range(leaf, np.asarray(0), np.asarray(1))
    if not isinstance(space, spaces.Box) or leaf.dtype.kind == "b":
        return None
    noted, wide = (None, None) if limits.keeps_bounds else (departures, widest_range(leaf, limits))
    if leaf.dtype.kind == "f":
        low, high = _float_bounds(leaf, space.low, space.high, limits)
        return Range(leaf, low, high, noted, wide)
    info = np.iinfo(leaf.dtype)
    if (space.low <= info.min).all() and (space.high >= info.max).all():
        return None
    return Range(leaf, np.asarray(space.low), np.asarray(space.high), noted)


def widest_range(leaf: ArraySpec, limits: ValueLimits) -> Range | None:
    """Return the range of a leaf without bounds; None: its dtype holds no other values."""
    return Range(leaf, *_float_bounds(leaf, -np.inf, np.inf, limits)) if leaf.dtype.kind == "f" else None


def _float_bounds(
    leaf: ArraySpec, low: Any, high: Any, limits: ValueLimits
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    # A bound beyond the limit, such as the largest float32, limits nothing; float16 has its own limit.
    largest = min(limits.observation, float(np.finfo(leaf.dtype).max))
    bounds = []
    for bound, sign in ((low, -1.0), (high, 1.0)):
        wide = np.clip(np.asarray(bound, np.float64), -largest, largest)
        slack = sign * _TOLERANCE * np.maximum(1.0, np.abs(wide))
        bounds.append(np.clip(wide + slack, -largest, largest).astype(leaf.dtype))
    return bounds[0], bounds[1]
