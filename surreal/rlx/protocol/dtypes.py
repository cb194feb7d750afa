"""Type ids of values, and the dtypes of arrays."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.rlx.protocol.errors import RlxDecodeError, RlxEncodeError

VERSION = 1

#: NONE and UINT4 are read, but never written.
NONE, NULL, INT4, STRING, DOUBLE, BOOLEAN, IMAGE, NDARRAY, LIST, UINT4, INT64, DICT = range(12)


#: As many as every NumPy in use can have.
MAX_NDIM = 32

#: Integers, floats, complex numbers, text, bytes and times, of fixed size and the same on every machine. Everything
#: else that `np.dtype` reads (objects, structures, sub-arrays, long doubles) is refused before it gets there.
_NAME = re.compile(
    r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)|(datetime64|timedelta64)(\[[A-Za-z0-9]{1,12}\])?"
    r"|[<>=|]?([?]|[iu][1248]|b1|f[248]|c(8|16)|[mM]8(\[[A-Za-z0-9]{1,12}\])?|[US][1-9][0-9]{0,8})"
)
_MAX_NAME = 40

_KNOWN: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in [
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
        "float16", "float32", "float64",
    ]
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _KNOWN.items()}


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Name a dtype as the protocol does.

    Raises:
        RlxEncodeError: arrays of it are not sent.
    """
    name = _NAMES.get(dtype)
    if name is None:
        name = str(dtype)
        if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
            raise RlxEncodeError(f"arrays of dtype {name[:_MAX_NAME]} are not sent; use numbers, booleans or text")
    return name


def dtype_of(name: str) -> np.dtype[Any]:
    """Find the dtype that a peer names.

    Raises:
        RlxDecodeError: it is none, or none that is accepted.
    """
    known = _KNOWN.get(name)
    if known is not None:
        return known
    if len(name) <= _MAX_NAME and _NAME.fullmatch(name):
        try:
            return np.dtype(name)
        except (TypeError, ValueError):
            pass
    raise RlxDecodeError(f"dtype {name[:_MAX_NAME]!r} is not one that is accepted")


def array_at(payload: bytes, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Make the array whose bytes begin at `start`; size and shape were checked.

    A view of the payload, unless its values would not be aligned, or could be other than 0 and 1 in a bool array.

    Raises:
        RlxDecodeError: texts in it are not Unicode.
    """
    if not all(shape):
        return np.zeros(shape, dtype)
    if dtype.kind == "b":
        # Compared with 1, an array without axes would become a scalar.
        return np.asarray(np.ndarray(shape, np.uint8, payload, start) == 1)
    if dtype.kind == "U":
        count = math.prod(shape) * dtype.itemsize // 4
        codes: NDArray[np.uint32] = np.ndarray(count, f"{dtype.byteorder}u4", payload, start)
        # NumPy would find out when it makes texts of them, with an error of the interpreter itself.
        if codes.max() > sys.maxunicode:
            raise RlxDecodeError("an array of texts has characters that are not Unicode's")
    array: NDArray[Any] = np.ndarray(shape, dtype, payload, start)
    if not array.flags.aligned:
        array = array.copy()
    return array
