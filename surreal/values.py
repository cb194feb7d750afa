"""Numbers from elsewhere: which of them may enter. Called wherever experience comes in.

One NaN in one observation ends in every parameter, and so does a finite number whose square leaves float32. What is
refused here is a fault of whoever sent it, never a property of a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Largest magnitude of a number: the square of 1.8e19 is beyond float32, and networks square what they are shown.
LARGEST = 1e18

#: Numbers of an array up to which a loop in Python is quicker than two calls of NumPy.
_FEW = 32
#: Characters of a value that is no number, in a message.
_SHOWN = 40


def is_sound(array: NDArray[Any]) -> bool:
    """Whether all numbers of an array are finite and at most `LARGEST`; integers and booleans always are.

    What NumPy has no numbers for, such as a whole one of a hundred digits, never is.
    """
    kind = array.dtype.kind
    if kind in "biu":
        return True
    if kind == "f" and array.size <= _FEW:
        # As below: what is not finite spoils the sum.
        if sum(map(abs, array.ravel().tolist())) <= LARGEST:
            return True
    elif kind == "f" and array.dtype.itemsize >= 4:
        flat = array.reshape(-1)
        # One pass without a copy. What is not finite spoils the sum, and so does a square that is too large.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.dot(flat, flat) <= LARGEST * LARGEST:
                return True
    return not unsound_rows(array.reshape(1, -1)).any()


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
