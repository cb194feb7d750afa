"""Type ids of values, and the values that travel as raw bytes: arrays with their dtypes, and images.

Images have Pillow's modes, and are read as arrays without Pillow.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any, NamedTuple

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
    """Name a dtype as the protocol does."""
    name = _NAMES.get(dtype)
    if name is None:
        name = str(dtype)
        if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
            raise RlxEncodeError(f"arrays of dtype {name[:_MAX_NAME]} are not sent; use numbers, booleans or text")
    return name


def dtype_of(name: str) -> np.dtype[Any]:
    """Find the dtype that a peer names."""
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
    return array if array.flags.aligned else array.copy()


#: Bands of the modes whose values are bytes that stand for 0..1.
_BANDS = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3, "LAB": 3, "HSV": 3}
#: Bytes of a pixel of the modes that keep their values.
_PIXEL_BYTES = {"I": 4, "F": 4, "P": 1}
_MODES = (*_BANDS, "1", *_PIXEL_BYTES)

#: byte / 255, looked up.
_UNIT = np.arange(256, dtype=np.float32) / np.float32(255)


class Image(NamedTuple):
    """An image in the form in which it was sent."""

    mode: str  #: Pillow's
    #: [height, width] or [height, width, bands]: uint8; bool for mode 1, int32 for I, float32 for F
    pixels: NDArray[Any]

    def to_array(self) -> NDArray[Any]:
        """Return the array that an image decodes to: float32 in 0..1 where bytes stand for brightness."""
        return _UNIT.take(self.pixels) if self.mode in _BANDS else self.pixels


def is_image(value: Any) -> bool:
    """Whether this is a Pillow image, without importing Pillow."""
    return any(base.__name__ == "Image" and base.__module__ == "PIL.Image" for base in type(value).__mro__)


def image_parts(image: Any) -> tuple[str, int, int, bytes]:
    """Return mode, width, height and raw bytes of a Pillow image."""
    if image.mode not in _MODES:
        raise RlxEncodeError(f"images of mode {image.mode} are not sent; convert to one of {', '.join(_MODES)}")
    width, height = image.size
    return image.mode, width, height, image.tobytes()


def check_size(mode: str, width: int, height: int, nbytes: int) -> None:
    """Check sizes that a peer announces."""
    if mode == "1":
        expected = (width + 7) // 8 * height
    elif mode in _MODES:
        expected = width * height * (_BANDS.get(mode) or _PIXEL_BYTES[mode])
    else:
        raise RlxDecodeError(f"image mode {mode[:20]!r} is not one of {', '.join(_MODES)}")
    if nbytes != expected or not expected:
        raise RlxDecodeError(f"an image of mode {mode}, {width} x {height}, has {expected} bytes, not {nbytes}")


def pixels_at(payload: bytes, start: int, mode: str, width: int, height: int) -> NDArray[Any]:
    """Make the array of the raw bytes at `start`; sizes were checked."""
    if mode == "1":
        packed: NDArray[np.uint8] = np.ndarray((height, (width + 7) // 8), np.uint8, payload, start)
        return np.unpackbits(packed, axis=1, count=width).view(np.bool_)
    if mode in ("I", "F"):
        pixels: NDArray[Any] = np.ndarray((height, width), "<i4" if mode == "I" else "<f4", payload, start)
        return pixels.copy()
    bands = _BANDS.get(mode, 1)
    return np.ndarray((height, width) if bands == 1 else (height, width, bands), np.uint8, payload, start)
