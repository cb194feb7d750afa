"""Decodes the values of a message: from hostile bytes to Python objects, by their type id."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.rlx.protocol import arrays
from surreal.rlx.protocol.errors import Limits, RlxDecodeError, RlxLimitError

_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_F64 = struct.Struct("<d")

#: Lists of numbers of one type, by far the most common ones, are read in one go.
_RECORDS = {
    arrays.DOUBLE: np.dtype([("type", "u1"), ("value", "<f8")]),
    arrays.INT4: np.dtype([("type", "u1"), ("value", "<i4")]),
}
_MIN_RECORDS = 8

#: The texts of every message, so that they are not decoded again and again.
_TEXTS = {
    text.encode(): text
    for text in (
        "command", "init", "update", "reset", "update_metrics", "exploit", "reward", "state", "terminal", "truncated",
        "sid", "data", "response", "action", "ready", "done", "error", "message", "name", "y", "x", "method", "scalar",
    )
}  # fmt: skip


class Reader:
    """Reads one payload from its beginning to its end.

    Methods may raise `struct.error` or `IndexError` past the end; the caller takes both for a message that is cut off.
    """

    __slots__ = ("_depth", "_items_left", "_keeps_images", "_limits", "_payload", "_pixels_left", "_position")

    def __init__(self, payload: bytes, limits: Limits, *, keeps_images: bool) -> None:
        self._payload = payload
        self._position = 4
        self._limits = limits
        self._items_left = limits.max_items
        self._pixels_left = limits.max_bytes
        self._depth = 0
        self._keeps_images = keeps_images

    def message(self) -> dict[str, Any]:
        size = len(self._payload)
        if size < 4:
            raise RlxDecodeError(f"a message begins with its version in 4 bytes, got {size}")
        found: dict[str, Any] = {}
        while self._position < size:
            self._take_items(1)
            key = self._text()
            found[key] = self._value()
        return found

    def _value(self) -> Any:
        kind = self._payload[self._position]
        self._position += 1
        if kind >= len(_READERS):
            raise RlxDecodeError(f"type id {kind} is not one of the protocol's")
        return _READERS[kind](self)

    def _u32(self) -> int:
        (value,) = _U32.unpack_from(self._payload, self._position)
        self._position += 4
        return value  # type: ignore[no-any-return]

    def _text(self) -> str:
        position = self._position + 4
        (length,) = _U32.unpack_from(self._payload, self._position)
        raw = self._payload[position : position + length]
        if len(raw) != length:
            raise RlxDecodeError(f"a text of {length} bytes is announced, but {len(raw)} are left")
        self._position = position + length
        known = _TEXTS.get(raw)
        if known is not None:
            return known
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise RlxDecodeError(f"a text of {length} bytes is not UTF-8") from error

    def _skip(self, count: int) -> int:
        """Move over `count` bytes, which must be there; returns where they begin."""
        start = self._position
        if count > len(self._payload) - start:
            raise RlxDecodeError(f"{count} bytes are announced, but {len(self._payload) - start} are left")
        self._position = start + count
        return start

    def _take_items(self, count: int) -> None:
        self._items_left -= count
        if self._items_left < 0:
            raise RlxLimitError(f"a message holds more items than the limit of {self._limits.max_items}")

    def _null(self) -> None:
        return None

    def _int4(self) -> int:
        (value,) = _I32.unpack_from(self._payload, self._position)
        self._position += 4
        return value  # type: ignore[no-any-return]

    def _int64(self) -> int:
        (value,) = _I64.unpack_from(self._payload, self._position)
        self._position += 8
        return value  # type: ignore[no-any-return]

    def _double(self) -> float:
        (value,) = _F64.unpack_from(self._payload, self._position)
        self._position += 8
        return value  # type: ignore[no-any-return]

    def _bool(self) -> bool:
        value = self._payload[self._position]
        self._position += 1
        return value == 1

    def _list(self) -> list[Any]:
        count = self._count(least_bytes=1)
        if count >= _MIN_RECORDS:
            numbers = self._numbers(count)
            if numbers is not None:
                return numbers
        self._enter()
        found = [self._value() for _ in range(count)]
        self._depth -= 1
        return found

    def _numbers(self, count: int) -> list[Any] | None:
        """Read a list whose items are all doubles, or all small ints; None if they are not."""
        payload, position = self._payload, self._position
        record = _RECORDS.get(payload[position])
        if record is None:
            return None
        size = record.itemsize
        kinds = payload[position : position + count * size : size]
        if count * size > len(payload) - position or kinds.count(kinds[0]) != count:
            return None
        self._position = position + count * size
        return np.frombuffer(payload, record, count, position)["value"].tolist()  # type: ignore[no-any-return]

    def _dict(self) -> dict[str, Any]:
        count = self._count(least_bytes=5)
        self._enter()
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self._text()
            found[key] = self._value()
        self._depth -= 1
        return found

    def _count(self, *, least_bytes: int) -> int:
        """Read the number of entries that follow, each of `least_bytes` or more."""
        count = self._u32()
        left = len(self._payload) - self._position
        if count * least_bytes > left:
            raise RlxDecodeError(f"{count} entries are announced, but {left} bytes are left")
        self._take_items(count)
        return count

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > self._limits.max_depth:
            raise RlxLimitError(f"lists and dicts are nested deeper than the limit of {self._limits.max_depth}")

    def _array(self) -> NDArray[Any]:
        dtype = arrays.dtype_of(self._text())
        ndim = self._u32()
        if ndim > arrays.MAX_NDIM:
            raise RlxDecodeError(f"an array of {ndim} dimensions is over the limit of {arrays.MAX_NDIM}")
        shape: tuple[int, ...] = struct.unpack_from(f"<{ndim}I", self._payload, self._position)
        self._position += 4 * ndim
        nbytes = self._u32()
        expected = math.prod(shape) * dtype.itemsize
        if nbytes != expected:
            raise RlxDecodeError(f"an array of shape {shape} and dtype {dtype} has {expected} bytes, not {nbytes}")
        # A zero in a shape would make room for sizes that no array can have.
        if not expected and math.prod(max(size, 1) for size in shape) * dtype.itemsize > self._limits.max_bytes:
            raise RlxLimitError(f"the sizes of an empty array of shape {shape} are over the limit")
        start = self._skip(nbytes)
        return arrays.array_at(self._payload, start, dtype, shape)

    def _image(self) -> Any:
        mode, width, height = self._text(), self._u32(), self._u32()
        nbytes = self._u32()
        arrays.check_size(mode, width, height, nbytes)
        start = self._skip(nbytes)
        if mode == "1":
            # A bit each here, a byte each as an array.
            self._pixels_left -= width * height
            if self._pixels_left < 0:
                raise RlxLimitError(f"the pixels of mode 1 are more than the limit of {self._limits.max_bytes} bytes")
        image = arrays.Image(mode, arrays.pixels_at(self._payload, start, mode, width, height))
        return image if self._keeps_images else image.to_array()

    #: By type id.
    TABLE: tuple[Callable[[Reader], Any], ...] = (
        _null, _null, _int4, _text, _double, _bool, _image, _array, _list, _u32, _int64, _dict,
    )  # fmt: skip


_READERS = Reader.TABLE
