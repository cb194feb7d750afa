"""Numbers from elsewhere: which of them may enter. Called wherever experience comes in.

One NaN in one observation ends in every parameter, and so does a finite number whose square leaves float32. What is
refused here is a fault of whoever sent it, never a property of a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Largest magnitude of a number: the square of 1.8e19 is beyond float32, and networks square what they are shown.
LARGEST = 1e18

#: Largest parameter version that may come from elsewhere. Experience holds versions as int32; this leaves room to grow.
MAX_VERSION = 1 << 30
#: Largest count that may come from elsewhere: Redis' scripts count in doubles.
MAX_COUNT = 1 << 53
#: Numbers of an array up to which a call with all of them is quicker than two of NumPy.
FEW = 32
#: Characters of a value that is no number, in a message.
_SHOWN = 40


def checked_count(value: Any, most: int = MAX_COUNT) -> int:
    """Return `value` if it is a whole number from 0 to `most`.

    Raises:
        ValueError: it is anything else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{str(value)[:_SHOWN]} is not a whole number from 0 to {most}")
    return value


def is_sound(array: NDArray[Any]) -> bool:
    """Whether all numbers of an array are finite and at most `LARGEST`; integers and booleans always are.

    What NumPy has no numbers for, such as a whole one of a hundred digits, never is. Quick for a single small row too,
    because it is asked of each one that a loop of one's own sends.
    """
    kind = array.dtype.kind
    if kind != "f":
        return kind in "biu"
    # The length of the vector: what is not finite spoils it, and nothing in it is longer than all of it.
    if array.size <= FEW:
        if hypot(*array.ravel().tolist()) <= LARGEST:
            return True
    # Its square, in one pass and without warnings; one that leaves its dtype proves nothing.
    elif array.dtype.itemsize >= 4 and np.vdot(array, array) <= LARGEST * LARGEST:
        return True
    return are_within(_wide(array), -LARGEST, LARGEST)


def are_within(array: NDArray[Any], least: float, most: float) -> bool:
    """Whether all numbers of an array, of which there is one at least, are in a range; nan is in none."""
    # It is found as smallest, and as largest. `min` and `max` take several times as long where the array is small.
    return bool(array.item(array.argmin()) >= least and array.item(array.argmax()) <= most)


def unsound_rows(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Say of each row [N, ...] whether it holds a number that is not finite, or larger than `LARGEST`; [N]."""
    if array.dtype.kind in "biu":
        return np.zeros(len(array), np.bool_)
    if array.dtype.kind != "f":
        return np.ones(len(array), np.bool_)
    # A comparison with nan is false.
    is_good: NDArray[np.bool_] = (np.abs(_wide(array).reshape(len(array), -1)) <= LARGEST).all(axis=1)
    return ~is_good


def describe_unsound(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Name the first array that is not sound, and the first such number in it; "" if there is none."""
    for name, array in arrays.items():
        if not is_sound(array):
            return f"{name} is {_first_bad(array)}; numbers must be finite, and their magnitude at most {LARGEST:g}"
    return ""


def _first_bad(array: NDArray[Any]) -> str:
    if array.dtype.kind != "f":
        text = repr(array.tolist())
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    flat = _wide(array).reshape(-1)
    return f"{float(flat[~(np.abs(flat) <= LARGEST)][0]):g}"


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    """A half-precision number cannot be compared with `LARGEST`, which is infinite there."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array
