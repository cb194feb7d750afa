"""The JSON form of messages, for WebSocket text frames: the same keys and values, arrays as nested lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from surreal.rlx.protocol.errors import RlxDecodeError, RlxEncodeError, RlxLimitError
from surreal.rlx.protocol.limits import DEFAULT_LIMITS, Limits


def parse_json(text: bytes | str, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Read a message.

    Raises:
        RlxDecodeError: it is no JSON object; `RlxLimitError` if it is over a limit.
    """
    if len(text) > limits.max_bytes:
        raise RlxLimitError(f"a message of {len(text)} bytes is over the limit of {limits.max_bytes}")
    comma, brackets = (b",", (b"[", b"{")) if isinstance(text, bytes) else (",", ("[", "{"))
    # Counted before anything is built; texts may hold these characters too, so it is an upper bound.
    openings = [text.count(bracket) for bracket in brackets]  # type: ignore[arg-type]
    if text.count(comma) + sum(openings) > limits.max_items:  # type: ignore[arg-type]
        raise RlxLimitError(f"a message holds more items than the limit of {limits.max_items}")
    try:
        message = json.loads(text)
    except RecursionError:
        raise RlxLimitError(f"lists and dicts are nested deeper than the limit of {limits.max_depth}") from None
    except ValueError as error:  # of JSON, of UTF-8, or of an int with thousands of digits
        raise RlxDecodeError(f"not a JSON message: {str(error)[:100]}") from None
    if not isinstance(message, dict):
        raise RlxDecodeError(f"a message is a JSON object, got {type(message).__name__}")
    if sum(openings) > limits.max_depth:
        _check_depth(message, limits.max_depth + 1)
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


def _check_depth(root: Any, limit: int) -> None:
    """Walk down level by level, without recursion."""
    level = [root]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise RlxLimitError(f"lists and dicts are nested deeper than the limit of {limit - 1}")
