"""States and rewards as clients send them, read into arrays that fit the spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec, ObsSpec, Structure, spaces_of
from surreal.base.tree import leaves
from surreal.rlx.pool.ranges import DEFAULT_LIMITS, Departures, Range, ValueLimits, range_of
from surreal.rlx.protocol.arrays import Image
from surreal.rlx.protocol.errors import RlxRequestError, RlxValueError, brief, brief_keys

_LARGEST_PART = float(np.finfo(np.float32).max)


class RewardReader:
    """Reads a number unchanged, and a list of numbers as their weighted sum.

    Args:
        weights: one for each number of a list; None adds lists of any length up.
        largest: magnitude of the largest reward, > 0 (see `ValueLimits`).
    """

    def __init__(self, weights: Sequence[float] | None = None, largest: float = DEFAULT_LIMITS.reward) -> None:
        self._weights = None if weights is None else [float(weight) for weight in weights]
        self.largest = largest  #: the largest magnitude, as given

    def read(self, reward: Any) -> float:
        """Return the reward as a number; raises `RlxRequestError` if it is none, `RlxValueError` if it is too large."""
        return self.check(reward if type(reward) is float else self._number(reward))

    def check(self, reward: float) -> float:
        """Return a reward that is finite, and not too large."""
        if not abs(reward) <= self.largest:
            raise _refused(reward, f"finite, and no larger than {self.largest:g}")
        return reward

    def _number(self, reward: Any) -> float:
        if isinstance(reward, bool | int):
            return _finite(reward)
        if isinstance(reward, np.ndarray):
            if reward.dtype.kind not in "biuf" or reward.ndim > 1:
                raise RlxRequestError(f"a reward array must be flat and of numbers, got {reward.dtype}{reward.shape}")
            reward = reward.tolist()
            if not isinstance(reward, list):
                return float(reward)
        if not isinstance(reward, list) or not all(isinstance(part, int | float) for part in reward):
            raise RlxRequestError(f"the reward must be a number or a list of numbers, got {type(reward).__name__}")
        if not reward:
            raise RlxRequestError(
                "the reward is an empty list; send a number, or numbers, or None to begin a new episode"
            )
        if self._weights is None:
            return sum(map(_finite, reward))
        if len(reward) != len(self._weights):
            raise RlxRequestError(f"the reward must have {len(self._weights)} numbers, got {len(reward)}")
        return sum(weight * _finite(part) for weight, part in zip(self._weights, reward, strict=True))


def _finite(part: float) -> float:
    """Return a part of a reward as a float: parts that cancel each other out must be numbers too."""
    if not abs(part) <= _LARGEST_PART:
        raise _refused(part, "finite, and in the range of a float32, in each of its parts")
    return float(part)


def _refused(value: float, must_be: str) -> RlxValueError:
    number = float("inf") if isinstance(value, int) else value
    return RlxValueError(f"the reward is {brief(value)}; it must be {must_be}", leaf="the reward", value=number)


#: One observation: per leaf an array [*shape], with shape (1,) in place of ().
Leaves = list[NDArray[Any]]


class StateReader:
    """Reads states into the leaves of an observation space; raises `ValueError` if that has no arrays.

    It accepts arrays, nested lists, and numbers whose values the leaf's dtype can hold (floats for an integer leaf only
    if they are whole). It accepts images, whose bytes a uint8 leaf takes unchanged and a float leaf as 0..1, shapes
    that differ only in axes of size 1, and None or [] for a space without values or with a single value. Choices must
    be in their space; numbers of a `Box` too, if the limits say so.

    Args:
        is_first_look: whether those who take plain states look at them again, through `plain_range`.
    """

    def __init__(
        self, space: gymnasium.Space[Any], limits: ValueLimits = DEFAULT_LIMITS, *, is_first_look: bool = False
    ) -> None:
        self.spec = ObsSpec.from_space(space)  #: spec of an observation
        tree = leaves(spaces_of(space))
        self.departures = Departures()  #: counts the states outside of their bounds
        self._ranges = [
            range_of(one, leaf, limits, self.departures) for one, leaf in zip(tree, self.spec.leaves, strict=True)
        ]
        is_single = isinstance(space, spaces.Discrete) and int(space.n) == 1
        self._has_choice = any(leaf.nbytes for leaf in self.spec.leaves) and not is_single
        self._only = self.spec.leaves[0] if self.spec.is_array else None
        #: format of a state whose bytes are an observation, after a check of `plain_range`; None: there is none
        self.plain = self._only if isinstance(space, spaces.Box) else None
        #: range of such a state; None: all values of its dtype
        self.plain_range = self._ranges[0] if self.plain is not None else None
        self._notes = not is_first_look or self.plain is None
        self._lows: Leaves = [_lowest(one, leaf) for one, leaf in zip(tree, self.spec.leaves, strict=True)]

    def read(self, state: Any) -> Leaves:
        """Read one state; raises `RlxRequestError` if it does not fit, `RlxValueError` if only a value does not."""
        only = self._only
        if only is not None:
            if type(state) is np.ndarray and state.dtype == only.dtype and state.shape == only.shape != ():
                if self._ranges[0] is not None:
                    self._ranges[0].check(state, is_noted=self._notes)
                return [state]
            if not self._has_choice and _is_nothing(state):
                return self._lows
            return [self._read_leaf(state, only, self._ranges[0])]
        if not self._has_choice and _is_nothing(state):
            return self._lows
        arrays: list[Any] = []
        _collect(state, self.spec.structure, arrays, "state")
        return [
            self._read_leaf(array, leaf, within)
            for array, leaf, within in zip(arrays, self.spec.leaves, self._ranges, strict=True)
        ]

    def nothing(self) -> Leaves:
        """Return an observation for a terminal state that was not sent: no learner bootstraps from it."""
        return self._lows

    def _read_leaf(self, state: Any, leaf: ArraySpec, within: Range | None) -> NDArray[Any]:
        if isinstance(state, Image):
            state = state.pixels if leaf.dtype == np.uint8 else state.to_array()
        try:
            sent = np.asarray(state)
        except (ValueError, OverflowError):
            raise RlxRequestError(f"{_expected(leaf)}, got a list that is not an array") from None
        if sent.dtype.kind not in "biuf":
            raise _no_numbers(state, sent, leaf)
        if sent.shape != leaf.shape:
            if _without_ones(sent.shape) != _without_ones(leaf.shape):
                raise RlxRequestError(f"{_expected(leaf)}, got {_describe(state, sent)}")
            sent = sent.reshape(leaf.shape)
        array = sent if sent.dtype == leaf.dtype else _cast(sent, leaf, state)
        if within is not None:
            within.check(array, sent, is_noted=self._notes)
        return array if array.ndim else array.reshape(1)


def _is_nothing(state: Any) -> bool:
    return state is None or (isinstance(state, list) and not state)


def _no_numbers(state: Any, sent: NDArray[Any], leaf: ArraySpec) -> RlxRequestError:
    message = f"{_expected(leaf)}, got {_describe(state, sent)}"
    huge = (
        next((x for x in sent.flat if type(x) is int and x.bit_length() > 63), None) if sent.dtype == object else None
    )
    if huge is None:
        return RlxRequestError(message)
    return RlxValueError(f"{message}: an int of {huge.bit_length()} bits is too large", leaf=leaf.name or "the state")


def _cast(array: NDArray[Any], leaf: ArraySpec, state: Any) -> NDArray[Any]:
    """Convert to the leaf's dtype, if it can hold all values; floats may lose precision."""
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(leaf.dtype)
    if leaf.dtype.kind == "f":
        return cast
    if not np.can_cast(array.dtype, leaf.dtype) and not np.array_equal(cast, array):
        value = array.flat[int(np.argmax(cast != array))]
        problem = f"{_expected(leaf)}, got {_describe(state, array)} with values that it cannot hold"
        raise RlxValueError(f"{problem}, such as {value}", leaf=leaf.name or "the state", value=float(value))
    return cast


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


def _lowest(space: gymnasium.Space[Any], leaf: ArraySpec) -> NDArray[Any]:
    """Return a default observation of a leaf: zeros where the space contains them."""
    start = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else 0
    return np.broadcast_to(np.asarray(start, leaf.dtype), leaf.shape or (1,))
