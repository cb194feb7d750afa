"""Encodes the values of a message: from Python objects to bytes, by their type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.rlx.protocol import arrays
from surreal.rlx.protocol.errors import RlxEncodeError

_U32, _INT4 = struct.Struct("<I"), struct.Struct("<Bi")
_INT64, _DOUBLE, _COUNT = struct.Struct("<Bq"), struct.Struct("<Bd"), struct.Struct("<BI")
_HEAD = _U32.pack(arrays.VERSION)
_NULL = bytes([arrays.NULL])
_FALSE, _TRUE = bytes([arrays.BOOLEAN, 0]), bytes([arrays.BOOLEAN, 1])
_STRING, _IMAGE, _NDARRAY = bytes([arrays.STRING]), bytes([arrays.IMAGE]), bytes([arrays.NDARRAY])

#: Lists of floats from this length on are written in one go.
_MIN_RECORDS = 8
_DOUBLES = np.dtype([("type", "u1"), ("value", "<f8")])

#: A list that contains itself ends here.
_MAX_DEPTH = 200


class Writer:
    """Collects the pieces of one message."""

    __slots__ = ("_depth", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = [_HEAD]
        self._depth = 0

    def message(self, message: Mapping[str, Any]) -> bytes:
        for key, value in message.items():
            self._key(key)
            self._value(value)
        return b"".join(self._parts)

    def _key(self, key: Any) -> None:
        known = _KEYS.get(key) if type(key) is str else None
        if known is None:
            if not isinstance(key, str):
                raise RlxEncodeError(f"keys must be str, got {type(key).__name__} {key!r:.40}")
            known = _encode_text(key)
        self._parts.append(known)

    def _value(self, value: Any) -> None:
        write = _WRITERS.get(type(value))
        if write is None:
            write = _find_writer(value)
        write(self, value)

    def _null(self, _: None) -> None:
        self._parts.append(_NULL)

    def _bool(self, value: Any) -> None:
        self._parts.append(_TRUE if value else _FALSE)

    def _int(self, value: int) -> None:
        if -0x80000000 <= value <= 0x7FFFFFFF:
            self._parts.append(_INT4.pack(arrays.INT4, value))
        else:
            self._int64(value)

    def _int64(self, value: Any) -> None:
        try:
            self._parts.append(_INT64.pack(arrays.INT64, value))
        except struct.error as error:
            raise RlxEncodeError(f"an int of {int(value).bit_length()} bits does not fit into 64") from error

    def _numpy_int(self, value: Any) -> None:
        self._int(int(value))

    def _float(self, value: Any) -> None:
        self._parts.append(_DOUBLE.pack(arrays.DOUBLE, value))

    def _str(self, value: str) -> None:
        self._parts.append(_STRING + _encode_text(value))

    def _list(self, value: Any) -> None:
        count = len(value)
        self._parts.append(_COUNT.pack(arrays.LIST, count))
        if count >= _MIN_RECORDS and type(value[0]) is float and set(map(type, value)) == {float}:
            records = np.empty(count, _DOUBLES)
            records["type"] = arrays.DOUBLE
            records["value"] = value
            self._parts.append(records.tobytes())
            return
        self._enter()
        for item in value:
            self._value(item)
        self._depth -= 1

    def _dict(self, value: Mapping[str, Any]) -> None:
        self._parts.append(_COUNT.pack(arrays.DICT, len(value)))
        self._enter()
        for key, item in value.items():
            self._key(key)
            self._value(item)
        self._depth -= 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RlxEncodeError(f"lists and dicts are nested deeper than {_MAX_DEPTH}, or contain themselves")

    def _array(self, value: NDArray[Any]) -> None:
        name = _encode_text(arrays.dtype_name(value.dtype))
        sizes = (value.ndim, *value.shape, value.nbytes)
        if max(sizes) > 0xFFFFFFFF:
            raise RlxEncodeError(f"an array of shape {value.shape} is too large for the protocol")
        self._parts += (_NDARRAY, name, struct.pack(f"<{len(sizes)}I", *sizes), value.tobytes())

    def _image(self, value: Any) -> None:
        mode, width, height, raw = arrays.image_parts(value)
        self._parts += (_IMAGE, _encode_text(mode), struct.pack("<III", width, height, len(raw)), raw)

    def _refuse(self, value: Any) -> None:
        problem = f"a {type(value).__module__}.{type(value).__qualname__} has no form in the protocol"
        raise RlxEncodeError(f"{problem}; send None, bool, int, float, str, an array, an image, a list, or a dict")

    #: Looked up by exact type.
    EXACT: dict[type, Callable[[Writer, Any], None]] = {  # noqa: RUF012 - a table, not a default
        type(None): _null,
        bool: _bool,
        np.bool_: _bool,
        int: _int,
        float: _float,
        str: _str,
        list: _list,
        tuple: _list,
        dict: _dict,
        np.ndarray: _array,
        np.int64: _int64,
        np.float64: _float,
        np.float32: _float,
    }
    #: Looked up in this order for all other types: subclasses, and NumPy's less common scalars.
    BASES: tuple[tuple[type, Callable[[Writer, Any], None]], ...] = (
        (np.timedelta64, _refuse),  # NumPy calls it an integer
        (np.integer, _numpy_int),
        (np.floating, _float),
        (int, _int),
        (float, _float),
        (str, _str),
        (np.ma.MaskedArray, _refuse),
        (np.ndarray, _array),
        (list, _list),
        (tuple, _list),
        (Mapping, _dict),
        (object, _refuse),
    )
    IMAGE_WRITER = _image


_WRITERS = Writer.EXACT


def _find_writer(value: Any) -> Callable[[Writer, Any], None]:
    if arrays.is_image(value):
        return Writer.IMAGE_WRITER
    return next(write for kind, write in Writer.BASES if isinstance(value, kind))


def _encode_text(text: str) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise RlxEncodeError(f"text {text[:40]!r} cannot be written as UTF-8: {error.reason}") from error
    return _U32.pack(len(raw)) + raw


_KEYS = {
    key: _encode_text(key)
    for key in ("command", "exploit", "reward", "state", "terminal", "truncated", "sid", "response", "data", "message")
}
