"""Brings the state that a client sends into the form of the configured observation space, or says why it does not fit.

Called by sessions on the server's thread. What fits as it is, is not copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.rlx.protocol.errors import RlxRequestError, brief, brief_keys
from surreal.rlx.protocol.images import Image
from surreal.specs import ArraySpec, ObsSpec, Structure, spaces_of
from surreal.tree import leaves

#: One observation: per leaf an array [*shape], with shape (1,) in place of ().
Leaves = list[NDArray[Any]]


class Bounds(NamedTuple):
    """Which integers a discrete leaf may hold."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]  #: exclusive


class StateReader:
    """Reads states into the leaves of an observation space.

    Accepted are: arrays, nested lists, and numbers whose values the leaf's dtype can hold (floats for an integer leaf
    only if they are whole); images, whose bytes an uint8 leaf takes as they are and a float leaf as 0..1; shapes that
    differ in axes of size 1 only; None or [] for a space without values, and for one with a single value.

    Args:
        space: the observation space of the environments.

    Attributes:
        spec: of an observation.
        plain: of a state whose bytes are an observation without a further look; None: there are none.

    Raises:
        ValueError: the space is of a kind that has no arrays.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.spec = ObsSpec.from_space(space)
        self._bounds = [_bounds(leaf) for leaf in leaves(spaces_of(space))]
        self._has_choice = any(leaf.nbytes for leaf in self.spec.leaves) and not _is_single(space)
        self._only = self.spec.leaves[0] if self.spec.is_array else None
        self.plain = self._only if self._bounds == [None] else None
        self._zeros: Leaves = [np.zeros(leaf.shape or (1,), leaf.dtype) for leaf in self.spec.leaves]
        self._lows: Leaves = [
            zero if bounds is None else np.broadcast_to(bounds.low, zero.shape).astype(zero.dtype)
            for zero, bounds in zip(self._zeros, self._bounds, strict=True)
        ]

    def read(self, state: Any) -> Leaves:
        """Read one state.

        Raises:
            RlxRequestError: it does not fit; names what was expected and what came.
        """
        only = self._only
        if only is not None:
            if type(state) is np.ndarray and state.dtype == only.dtype and state.shape == only.shape != ():
                if self._bounds[0] is not None:
                    _check_bounds(state, self._bounds[0], only)
                return [state]
            if not self._has_choice and _is_nothing(state):
                return self._lows
            return [_read_leaf(state, only, self._bounds[0])]
        if not self._has_choice and _is_nothing(state):
            return self._lows
        arrays: list[Any] = []
        _collect(state, self.spec.structure, arrays, "state")
        return [
            _read_leaf(array, leaf, bounds)
            for array, leaf, bounds in zip(arrays, self.spec.leaves, self._bounds, strict=True)
        ]

    def nothing(self) -> Leaves:
        """Give an observation for a terminal state that was not sent: nobody bootstraps from it."""
        return self._lows


def _is_nothing(state: Any) -> bool:
    return state is None or (isinstance(state, list) and not state)


def _read_leaf(state: Any, leaf: ArraySpec, bounds: Bounds | None) -> NDArray[Any]:
    if isinstance(state, Image):
        state = state.pixels if leaf.dtype == np.uint8 else state.to_array()
    try:
        array = np.asarray(state)
    except (ValueError, OverflowError):
        raise RlxRequestError(f"{_expected(leaf)}, got a list that is no array") from None
    if array.dtype.kind not in "biuf":
        raise RlxRequestError(f"{_expected(leaf)}, got {_describe(state, array)}")
    if array.shape != leaf.shape:
        if _without_ones(array.shape) != _without_ones(leaf.shape):
            raise RlxRequestError(f"{_expected(leaf)}, got {_describe(state, array)}")
        array = array.reshape(leaf.shape)
    if array.dtype != leaf.dtype:
        array = _cast(array, leaf, state)
    if bounds is not None:
        _check_bounds(array, bounds, leaf)
    return array if array.ndim else array.reshape(1)


def _cast(array: NDArray[Any], leaf: ArraySpec, state: Any) -> NDArray[Any]:
    """Convert to the leaf's dtype, if it can hold all values; floats may lose precision."""
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(leaf.dtype)
    if leaf.dtype.kind == "f":
        return cast
    if not np.can_cast(array.dtype, leaf.dtype) and not np.array_equal(cast, array):
        raise RlxRequestError(f"{_expected(leaf)}, got {_describe(state, array)} with values that it cannot hold")
    return cast


def _check_bounds(array: NDArray[Any], bounds: Bounds, leaf: ArraySpec) -> None:
    if np.any(array < bounds.low) or np.any(array >= bounds.high):
        low, high = bounds.low.ravel().tolist(), (bounds.high - 1).ravel().tolist()
        raise RlxRequestError(f"{_expected(leaf)} from {low} to {high}, got {np.ravel(array)[:20].tolist()}")


def _expected(leaf: ArraySpec) -> str:
    return f"{f'state {leaf.name}' if leaf.name else 'the state'} must have shape {leaf.shape} and dtype {leaf.dtype}"


def _describe(state: Any, array: NDArray[Any]) -> str:
    if isinstance(state, dict):
        return f"a dict with keys {brief_keys(state)}"
    if state is None or isinstance(state, str):
        return brief(state)
    return f"shape {array.shape} and dtype {array.dtype}"


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _collect(state: Any, structure: Structure, arrays: list[Any], path: str) -> None:
    """Take a nested state apart; wire messages have lists where a space has tuples."""
    if structure is None:
        arrays.append(state)
    elif "dict" in structure:
        children = structure["dict"]
        if not isinstance(state, dict) or state.keys() != children.keys():
            got = f"keys {brief_keys(state)}" if isinstance(state, dict) else type(state).__name__
            raise RlxRequestError(f"{path} must be a dict with keys {list(children)}, got {got}")
        for key, child in children.items():
            _collect(state[key], child, arrays, f"{path}.{key}")
    else:
        items = structure["tuple"]
        if not isinstance(state, list | tuple) or len(state) != len(items):
            got = f"{len(state)} items" if isinstance(state, list | tuple) else type(state).__name__
            raise RlxRequestError(f"{path} must be a list of {len(items)} items, got {got}")
        for index, (item, child) in enumerate(zip(state, items, strict=True)):
            _collect(item, child, arrays, f"{path}.{index}")


def _bounds(space: Any) -> Bounds | None:
    """Give the bounds of a leaf: only those whose violation can break a network."""
    if isinstance(space, spaces.Discrete):
        return Bounds(np.asarray(space.start, np.int64), np.asarray(space.start + space.n, np.int64))
    if isinstance(space, spaces.MultiDiscrete):
        low = np.asarray(space.start, np.int64)
        return Bounds(low, low + np.asarray(space.nvec, np.int64))
    if isinstance(space, spaces.MultiBinary):
        shape = tuple(space.shape or ())
        return Bounds(np.zeros(shape, np.int64), np.full(shape, 2, np.int64))
    return None


def _is_single(space: gymnasium.Space[Any]) -> bool:
    return isinstance(space, spaces.Discrete) and int(space.n) == 1
