"""Images in a message: Pillow's modes and raw bytes, read as arrays without Pillow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.rlx.protocol.errors import RlxDecodeError, RlxEncodeError

#: Bands of the modes whose values are bytes that stand for 0..1.
_BANDS = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3, "LAB": 3, "HSV": 3}
#: Bytes of a pixel of the modes that keep their values.
_PIXEL_BYTES = {"I": 4, "F": 4, "P": 1}
_MODES = (*_BANDS, "1", *_PIXEL_BYTES)

#: byte / 255, looked up.
_UNIT = np.arange(256, dtype=np.float32) / np.float32(255)


class Image(NamedTuple):
    """An image as it was sent."""

    mode: str  #: Pillow's
    pixels: NDArray[
        Any
    ]  #: [height, width] or [height, width, bands]: uint8; bool for mode 1, int32 for I, float32 for F

    def to_array(self) -> NDArray[Any]:
        """Return the array that an image decodes to: float32 in 0..1 where bytes stand for brightness."""
        return _UNIT.take(self.pixels) if self.mode in _BANDS else self.pixels


def is_image(value: Any) -> bool:
    """Whether this is a Pillow image, without importing Pillow."""
    return any(base.__name__ == "Image" and base.__module__ == "PIL.Image" for base in type(value).__mro__)


def image_parts(image: Any) -> tuple[str, int, int, bytes]:
    """Return mode, width, height and raw bytes of a Pillow image.

    Raises:
        RlxEncodeError: the protocol does not have its mode.
    """
    if image.mode not in _MODES:
        raise RlxEncodeError(f"images of mode {image.mode} are not sent; convert to one of {', '.join(_MODES)}")
    width, height = image.size
    return image.mode, width, height, image.tobytes()


def check_size(mode: str, width: int, height: int, nbytes: int) -> None:
    """Check what a peer announces.

    Raises:
        RlxDecodeError: mode, size and bytes are not those of an image.
    """
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
