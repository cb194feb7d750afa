"""Observations: shape, dtype and bounds of their space; finite, of a size to learn from, new in each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base import tree
from surreal.base.specs import ObsSpec, spaces_of
from surreal.base.tree import with_paths
from surreal.base.values import describe_unsound, is_sound
from surreal.plugins.doctor.finding import Finding, fault, listed, ok
from surreal.plugins.doctor.watchers import Shown

_LARGE = 1e3
#: Share of observations outside of their bounds that is no longer an accident.
_OFTEN = 0.01
#: Steps of an episode after which constant observations are reported; an episode of a bandit has one.
_FEW_STEPS = 5


class ObservationWatcher:
    """Compares observations with their space."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._space = space
        self._spec = ObsSpec.from_space(space)
        self._leaves = [_LeafWatcher(path, leaf) for path, leaf in with_paths(spaces_of(space))]
        self._problem: Finding | None = None
        self._count = self._length = self._longest = 0

    def see(self, shown: Shown) -> None:
        if self._problem is not None:
            return
        self._count += 1
        self._length = 0 if shown.is_reset else self._length + 1
        self._longest = max(self._longest, self._length)
        try:
            parts = self._spec.split(shown.obs)
        except ValueError as error:
            self._problem = fault("obs-does-not-fit", f"{'reset' if shown.is_reset else 'step'}: {error}")
            return
        for leaf, part in zip(self._leaves, parts, strict=True):
            if (problem := leaf.see(part)) is not None:
                self._problem = problem
                return

    def findings(self) -> Iterator[Finding]:
        found = [finding for leaf in self._leaves for finding in leaf.findings(self._count, self._longest)]
        if self._problem is not None:
            yield self._problem
        yield from found
        if self._problem is None and not found and self._count:
            parts = [f"{leaf.dtype}{list(leaf.shape or ())}" for leaf in tree.leaves(spaces_of(self._space))]
            yield ok(f"{self._count:,} observations are in their space, {listed(parts, 4)}")


class _LeafWatcher:
    """Looks at one leaf of all observations."""

    def __init__(self, path: str, space: gymnasium.Space[Any]) -> None:
        self._name = f"observation {path!r}" if path else "the observation"
        self._space = space
        self._first: NDArray[Any] | None = None
        self._last: NDArray[Any] | None = None
        self._dtypes: dict[np.dtype[Any], int] = {}
        self._outside, self._outside_text = 0, ""
        self._unsound = ""
        self._largest = 0.0
        self._changes = self._is_reused = False

    def see(self, value: Any) -> Finding | None:
        """Check a value, and return a finding that makes further checks pointless."""
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            return fault("obs-does-not-fit", f"{self._name} is {type(value).__name__} of {array.dtype}, not numbers")
        if array.shape != self._space.shape:
            return fault(
                "obs-does-not-fit", f"{self._name} has shape {array.shape}, but its space says {self._space.shape}"
            )
        if array.dtype.kind == "f" and np.dtype(self._space.dtype).kind in "biu":
            return fault("obs-does-not-fit", f"{self._name} is {array.dtype}, but its space says {self._space.dtype}")
        if isinstance(value, np.ndarray | np.generic):
            self._dtypes[array.dtype] = self._dtypes.get(array.dtype, 0) + 1
        if not is_sound(array):
            self._unsound = self._unsound or describe_unsound({self._name: array})
        elif (text := self._describe_outside(array)) != "":
            self._outside += 1
            self._outside_text = self._outside_text or text
        if array.dtype.kind == "f" and array.size and is_sound(array):
            self._largest = max(self._largest, float(np.abs(array).max()))
        self._note_change(value, array)
        return None

    def findings(self, count: int, longest: int) -> Iterator[Finding]:
        """Yield the findings of `count` observations, with `longest` steps in the longest episode."""
        name, dtype = self._name, self._space.dtype
        if self._unsound:
            yield fault("obs-not-finite", self._unsound)
        if self._outside:
            often = "obs-outside-space" if self._outside >= _OFTEN * count else "obs-outside-space-seldom"
            yield fault(
                often, f"{name} leaves its space in {self._outside:,} of {count:,} observations: {self._outside_text}"
            )
        others = [found for found in self._dtypes if found != dtype]
        if len(self._dtypes) > 1:
            yield fault(
                "obs-changes-dtype", f"{name} is now {' and now '.join(map(str, self._dtypes))}, of space {dtype}"
            )
        elif others and not isinstance(self._space, spaces.Discrete):
            yield fault("obs-of-other-dtype", f"{name} is {others[0]}, but its space says {dtype}")
        if self._is_reused:
            yield fault("obs-reused", f"{name} is the same array in each step")
        if self._largest > _LARGE and dtype is not None and np.dtype(dtype).kind == "f":
            yield fault("obs-large", f"{name} goes up to {self._largest:,.0f}")
        if not self._changes and longest >= _FEW_STEPS and not self._unsound:
            yield fault("obs-constant", f"{name} is the same in all of {count:,} steps")

    def _describe_outside(self, array: NDArray[Any]) -> str:
        space = self._space
        if isinstance(space, spaces.Box):
            is_outside = (array < space.low) | (array > space.high)
            if not is_outside.any():
                return ""
            place = tuple(int(index) for index in np.argwhere(is_outside)[0])
            at = f" at {list(place)}" if place else ""
            return f"{array[place]:g}{at}, bounds {space.low[place]:g} to {space.high[place]:g}"
        return "" if space.contains(array.astype(space.dtype)) else f"{array.tolist()}, space {space}"

    def _note_change(self, value: Any, array: NDArray[Any]) -> None:
        if self._first is None:
            self._first = array.copy()
        elif not self._changes:
            self._changes = not np.array_equal(array, self._first)
        if isinstance(value, np.ndarray) and value.size:
            if self._last is not None and value.flags.writeable and np.shares_memory(value, self._last):
                self._is_reused = True
            self._last = value
