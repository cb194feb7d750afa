"""The two forms of an RLX message: bytes, and JSON for the text frames of a WebSocket.

As bytes, a message is `u32 version`, then `(key, type, value)*` to the end; little-endian throughout. This is
compatible, byte for byte, with RELAAX 1.1.0. As JSON, it has the same keys and values, with arrays as nested lists.
Servers and clients call it. It is pure: no I/O, no clock, no torch. Every length that a peer declares is checked
against what has arrived, and against `Limits`, before anything is allocated. What the protocol has no form for is
refused, never turned into text.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from surreal.rlx.protocol.errors import DEFAULT_LIMITS, Limits, RlxDecodeError, RlxEncodeError, RlxLimitError
from surreal.rlx.protocol.reader import Reader
from surreal.rlx.protocol.writer import Writer

#: A string, or the beginning of one that does not end.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message: keys to None, bool, int (64 bit), float, str, NumPy scalars and arrays, Pillow images, lists,
    tuples, and dictionaries with str keys. Raises `RlxEncodeError` if a value has no form in the protocol.
    """
    return Writer().message(message)


def decode(payload: bytes, limits: Limits = DEFAULT_LIMITS, *, keeps_images: bool = False) -> dict[str, Any]:
    """Decode a message; raises `RlxDecodeError` if it is malformed, `RlxLimitError` if it is over a limit.

    Arrays are read-only views of `payload` where their alignment allows it, else copies. With `keeps_images`, images
    stay `arrays.Image`; otherwise, they decode to arrays.
    """
    if type(payload) is not bytes:
        payload = bytes(payload)
    if len(payload) > limits.max_bytes:
        raise RlxLimitError(f"a message of {len(payload)} bytes is over the limit of {limits.max_bytes}")
    try:
        return Reader(payload, limits, keeps_images=keeps_images).message()
    except (struct.error, IndexError) as error:
        # Fields of fixed size are read without a separate check: past the end, these are raised.
        raise RlxDecodeError(f"the message of {len(payload)} bytes is cut off") from error


def parse_json(text: bytes | str, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Read a message; raises `RlxDecodeError` if it is not a JSON object, `RlxLimitError` if it is over a limit."""
    if len(text) > limits.max_bytes:
        raise RlxLimitError(f"a message of {len(text)} bytes is over the limit of {limits.max_bytes}")
    data = text.encode(errors="replace") if isinstance(text, str) else text
    # Counted before anything is built; strings may hold these characters too, so it is an upper bound.
    openings = data.count(b"[") + data.count(b"{")
    if data.count(b",") + openings > limits.max_items:
        raise RlxLimitError(f"a message holds more items than the limit of {limits.max_items}")
    if openings > limits.max_depth and _depth(data) > limits.max_depth + 1:  # the message itself is not counted
        raise RlxLimitError(f"lists and dicts are nested deeper than the limit of {limits.max_depth}")
    try:
        message = json.loads(data.decode())  # as UTF-8, which the checks above have read
    except ValueError as error:  # of JSON, of UTF-8, or of an int with thousands of digits
        raise RlxDecodeError(f"not a JSON message: {str(error)[:100]}") from None
    if not isinstance(message, dict):
        raise RlxDecodeError(f"a message is a JSON object, got {type(message).__name__}")
    return message


def dump_json(message: Mapping[str, Any]) -> str:
    """Write a message; raises `RlxEncodeError` if a value has no form in JSON, nan and infinities among them."""
    try:
        return json.dumps(message, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise RlxEncodeError(f"no JSON: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _depth(data: bytes) -> int:
    """Measure the deepest nesting of a JSON text, at a fraction of the cost of parsing it.

    What follows a mistake in the text, where a parser stops, may be taken for anything.
    """
    brackets = np.frombuffer(_STRING.sub(b"", data).translate(None, _NO_BRACKETS), np.uint8)
    # The codes of [ and { have the second bit, those of ] and } do not.
    return int(np.cumsum(np.where(brackets & 2, 1, -1)).max(initial=0))
