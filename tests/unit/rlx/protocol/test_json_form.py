"""Messages as JSON."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.rlx.protocol.codec import _depth, dump_json, parse_json
from surreal.rlx.protocol.errors import Limits, RlxDecodeError, RlxEncodeError, RlxLimitError


def test_arrays_become_nested_lists() -> None:
    text = dump_json({"data": np.array([[1, 2], [3, 4]]), "x": np.float32(0.5), "y": np.int64(3), "z": np.array(1)})
    assert parse_json(text) == {"data": [[1, 2], [3, 4]], "x": 0.5, "y": 3, "z": 1}
    assert parse_json(text.encode()) == parse_json(text)


@pytest.mark.parametrize("value", [float("nan"), np.array([np.inf]), b"x", object(), {1, 2}, np.array([1j])])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(RlxEncodeError):
        dump_json({"data": value})


@pytest.mark.parametrize("text", [b"", b"[]", b"5", b"{", b"{]", b"\xff{}", b'{"a": 1' + b"0" * 5000 + b"}", "nul"])
def test_what_is_no_message_is_a_typed_error(text: bytes) -> None:
    with pytest.raises(RlxDecodeError):
        parse_json(text)


def test_limits_hold() -> None:
    with pytest.raises(RlxLimitError, match="bytes"):
        parse_json(b'{"a": "' + b"x" * 100 + b'"}', Limits(max_bytes=50))
    with pytest.raises(RlxLimitError, match="items"):
        parse_json(b'{"a": [' + b"1," * 100 + b"1]}", Limits(max_items=100))
    with pytest.raises(RlxLimitError, match="items"):
        parse_json(b"[" * 70_000, Limits(max_items=100))
    with pytest.raises(RlxLimitError, match="nested deeper"):
        parse_json(b'{"a": ' + b"[" * 70_000 + b"]" * 70_000 + b"}")
    with pytest.raises(RlxLimitError, match="nested deeper than the limit of 5"):
        parse_json(b'{"a": ' + b"[" * 6 + b"]" * 6 + b"}", Limits(max_depth=5))
    assert parse_json(b'{"a": ' + b"[" * 5 + b"]" * 5 + b"}", Limits(max_depth=5))


@given(st.binary(max_size=100))
def test_any_bytes_parse_or_raise_a_typed_error(data: bytes) -> None:
    with suppress(RlxDecodeError):
        parse_json(data)


def depth_of(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth_of, children), default=0)


_JSON = st.recursive(
    st.text(alphabet='[]{}"\\,a\u00e4\n', max_size=6) | st.none() | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(value=st.dictionaries(st.text('[{"\\', max_size=3), _JSON, max_size=3), is_ascii=st.booleans())
def test_depth_is_known_without_parsing(value: Any, *, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii).encode()
    depth = depth_of(value)
    assert _depth(text) == depth
    assert parse_json(text, Limits(max_depth=max(1, depth - 1))) == value
    if depth > 2:
        with pytest.raises(RlxLimitError, match="nested deeper"):
            parse_json(text, Limits(max_depth=depth - 2))


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": ' + b"[" * 50_000, b"[" * 50_000 + b'"', b'{"a": "\\',
        b'{"a": "\\"' + b"]" * 90 + b'", "b": ' + b"[" * 90,
        ('{"a": "\u2200' + "[" * 900 + "]" * 900 + "}").encode("utf-16-le"), '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-32"), b'\xff{"a": 1}',
    ],
)  # fmt: skip
def test_text_that_is_neither_json_nor_utf_8_is_refused_before_it_is_followed_down(text: bytes) -> None:
    with pytest.raises(RlxDecodeError, match=r"nested deeper than the limit of 32|not a JSON message"):
        parse_json(text)
