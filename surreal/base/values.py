"""Checks of numbers and of JSON from other processes, wherever experience comes in.

One NaN in one observation reaches every parameter, and so does a finite number whose square exceeds float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Largest magnitude of a number: the square of 1.8e19 exceeds float32, and networks square their inputs.
LARGEST = 1e18

#: Largest parameter version from another process. Experience stores versions as int32; this leaves room to grow.
MAX_VERSION = 1 << 30
#: Largest count from another process: Redis' scripts count in doubles.
MAX_COUNT = 1 << 53
#: Up to this size of an array, one call with all numbers is faster than two calls of NumPy.
FEW = 32
#: Longest text of a bad value in a message.
_SHOWN = 40


def checked_count(value: Any, most: int = MAX_COUNT) -> int:
    """Return `value` if it is a whole number from 0 to `most`; raise `ValueError` otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{str(value)[:_SHOWN]} is not a whole number from 0 to {most}")
    return value


def json_object(value: str | bytes) -> dict[str, Any]:
    """Decode a JSON object; anything else counts as empty, because bytes from a network are hostile."""
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def is_sound(array: NDArray[Any]) -> bool:
    """Whether all numbers of an array are finite and at most `LARGEST`; integers and booleans are, objects are not.

    It is fast for a single small row, because agents send such rows one by one.
    """
    kind = array.dtype.kind
    if kind != "f":
        return kind in "biu"
    # The length of the vector: it bounds each number, and is not finite if one of them is not.
    if array.size <= FEW:
        if hypot(*array.ravel().tolist()) <= LARGEST:
            return True
    # Its square, in one pass and without warnings; an overflow proves nothing.
    elif array.dtype.itemsize >= 4 and np.vdot(array, array) <= LARGEST * LARGEST:
        return True
    return are_within(_wide(array), -LARGEST, LARGEST)


def are_within(array: NDArray[Any], least: float, most: float) -> bool:
    """Whether all numbers of an array that is not empty are in a range; nan is in none."""
    # argmin and argmax find a nan. `min` and `max` take several times as long for small arrays.
    return bool(array.item(array.argmin()) >= least and array.item(array.argmax()) <= most)


def unsound_rows(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark each row [N, ...] that holds a number that is not finite, or larger than `LARGEST`; returns [N]."""
    if array.dtype.kind in "biu":
        return np.zeros(len(array), np.bool_)
    if array.dtype.kind != "f":
        return np.ones(len(array), np.bool_)
    # A comparison with nan is false.
    is_good: NDArray[np.bool_] = (np.abs(_wide(array).reshape(len(array), -1)) <= LARGEST).all(axis=1)
    return ~is_good


def describe_unsound(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Name the first array that is not sound and the first bad number in it; "" if all are sound."""
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
    """Widen half precision, in which `LARGEST` is infinite."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 else array
