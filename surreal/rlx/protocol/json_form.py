"""The JSON form of messages, for WebSocket text frames: the same keys and values, arrays as nested lists."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from surreal.rlx.protocol.errors import DEFAULT_LIMITS, Limits, RlxDecodeError, RlxEncodeError, RlxLimitError

#: A string, or the beginning of one that does not end.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def parse_json(text: bytes | str, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Read a message.

    Raises:
        RlxDecodeError: it is not a JSON object; `RlxLimitError` if it is over a limit.
    """
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
    """Write a message.

    Raises:
        RlxEncodeError: a value has no form in JSON, nan and infinities among them.
    """
    try:
        return json.dumps(message, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise RlxEncodeError(f"no JSON: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        return value.tolist()
    return _refuse(value)


def _refuse(value: Any) -> NoReturn:
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _depth(data: bytes) -> int:
    """Measure the deepest nesting of a JSON text, at a fraction of the cost of parsing it.

    What follows a mistake in the text, where a parser stops, may be taken for anything.
    """
    brackets = np.frombuffer(_STRING.sub(b"", data).translate(None, _NO_BRACKETS), np.uint8)
    # The codes of [ and { have the second bit, those of ] and } do not.
    return int(np.cumsum(np.where(brackets & 2, 1, -1)).max(initial=0))
