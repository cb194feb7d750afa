"""The payload codec: RELAAX's own bytes, round trips, and hostile input."""

from __future__ import annotations

import enum
import json
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from surreal.rlx.protocol.codec import decode, encode
from surreal.rlx.protocol.errors import Limits, RlxDecodeError, RlxEncodeError, RlxLimitError
from surreal.rlx.protocol.framing import FrameReader, frame
from tests.examples import examples

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "rlx_vectors.json").read_text())
NAMES = {"np": np, "array": np.array, "uint8": np.uint8, "float32": np.float32, "float64": np.float64}


def same(a: Any, b: Any) -> bool:
    """Equal in type and value; nan equals nan."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        both = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
        if not both or a.dtype != b.dtype or a.shape != b.shape:
            return False
        # Pillow has bools of 255, which are true all the same.
        return bool((a == b).all()) if a.dtype == bool else a.tobytes() == b.tobytes()
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and (a == b or (a != a and b != b))


def payload(*parts: bytes) -> bytes:
    return b"\x01\0\0\0" + b"".join(parts)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


def array_bytes(dtype: str, shape: tuple[int, ...], raw: bytes, nbytes: int | None = None) -> bytes:
    head = b"\x07" + text(dtype) + struct.pack(f"<I{len(shape)}I", len(shape), *shape)
    return payload(text("s"), head, struct.pack("<I", len(raw) if nbytes is None else nbytes), raw)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frame_decodes_to_what_relaax_made_of_it(name: str) -> None:
    (found,) = FrameReader().feed(bytes.fromhex(GOLDEN[name]["frame_hex"]))
    assert repr(decode(found)) == GOLDEN[name]["decoded"]


@pytest.mark.parametrize("name", [name for name in GOLDEN if GOLDEN[name]["value"]])
def test_golden_value_encodes_to_the_same_bytes(name: str) -> None:
    value = eval(GOLDEN[name]["value"], NAMES)
    assert frame(encode(value)).hex() == GOLDEN[name]["frame_hex"]


LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20)
    | hnp.arrays(
        hnp.integer_dtypes(endianness="?") | hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?")
        | hnp.boolean_dtypes() | hnp.unicode_string_dtypes(max_len=4) | hnp.complex_number_dtypes(),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)  # fmt: skip
VALUES = st.recursive(
    LEAVES, lambda child: st.lists(child, max_size=12) | st.dictionaries(st.text(max_size=8), child, max_size=5)
)


@examples(60)
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=3))
def test_everything_comes_back_as_it_was(message: dict[str, Any]) -> None:
    assert same(decode(encode(message)), message)


@given(st.lists(st.floats(), min_size=8, max_size=40) | st.lists(st.integers(-(2**31), 2**31 - 1), min_size=8))
def test_lists_of_numbers_come_back_as_they_were(values: list[Any]) -> None:
    assert same(decode(encode({"s": values})), {"s": values})
    mixed = [*values, True]
    assert same(decode(encode({"s": mixed})), {"s": mixed})


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5), (np.float16(0.5), 0.5), (np.int8(-3), -3), (np.uint8(200), 200),
        (np.uint32(2**32 - 1), 2**32 - 1), (np.int64(5), 5), (np.bool_(True), True), (Colour.RED, 3),
        ((1, (2, "x")), [1, [2, "x"]]), (np.str_("x"), "x"), (2**31, 2**31), (-(2**63), -(2**63)),
    ],
)  # fmt: skip
def test_values_that_relaax_made_texts_of_keep_their_meaning(value: Any, expected: Any) -> None:
    assert same(decode(encode({"s": value})), {"s": expected})


@pytest.mark.parametrize(
    "value",
    [
        b"bytes", {1, 2}, object(), 2**63, -(2**63) - 1, {1: "x"}, "\ud800", 1 + 2j, range(3),
        np.array([object()]), np.zeros(2, "f4,i4"), np.zeros(2, np.longdouble), np.zeros(2, "V3"),
        np.array([b""], "S"), np.datetime64("2020"), np.timedelta64(1, "s"), np.bytes_(b"x"),
        np.ma.masked_array([1, 2], mask=[True, False]), Image.new("LA", (2, 2)), [Ellipsis],
    ],
)  # fmt: skip
def test_what_has_no_form_is_refused_and_never_a_text(value: Any) -> None:
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        assert same(decode(encode({"s": value})), {"s": value})  # bytes of a fixed size do have one
        return
    with pytest.raises(RlxEncodeError):
        encode({"s": value})


def test_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RlxEncodeError, match="nested deeper"):
        encode({"s": endless})


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "1", "I", "F", "P"])
@pytest.mark.parametrize("size", [(1, 1), (9, 5), (16, 3)])
def test_image_of_each_mode_decodes_to_its_array(mode: str, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8))
    image = image.convert("RGB" if mode in ("LAB", "HSV") else mode) if mode != "LAB" else image
    image = Image.frombytes(mode, size, image.tobytes()) if mode in ("LAB", "HSV") else image
    found = decode(encode({"s": image}))["s"]
    expected = np.asarray(image)
    if mode in ("1", "I", "F", "P"):
        assert same(found, expected.astype({"1": bool, "I": np.int32, "F": np.float32, "P": np.uint8}[mode]))
    else:
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected.astype(np.float32) / np.float32(255))


def test_pixels_of_a_bit_each_count_as_the_bytes_that_they_become() -> None:
    image = Image.new("1", (800, 100), 1)
    payload = encode({"a": image, "b": image})
    assert len(payload) < 30_000
    assert decode(payload, Limits(max_bytes=160_000))["b"].all()
    with pytest.raises(RlxLimitError, match="mode 1"):
        decode(payload, Limits(max_bytes=159_999))


def test_images_may_be_kept_as_they_were_sent() -> None:
    image = Image.new("L", (3, 2), 7)
    found = decode(encode({"s": image}), keeps_images=True)["s"]
    assert found.mode == "L"
    assert same(found.pixels, np.full((2, 3), 7, np.uint8))


def test_arrays_are_views_where_they_are_aligned_and_bools_are_clean() -> None:
    state = np.arange(10, dtype=np.uint8)
    raw = encode({"s": state})
    found = decode(raw)["s"]
    assert not found.flags.writeable
    assert found.base is not None
    dirty = decode(array_bytes("bool", (3,), b"\x00\x01\x02"))["s"]
    assert dirty.view(np.uint8).tolist() == [0, 1, 0]
    floats = decode(b"".join([encode({"x": "a" * 3, "s": np.arange(3.0)})]))["s"]
    assert floats.flags.aligned
    assert floats.tolist() == [0, 1, 2]


def test_ids_that_are_never_written_are_read_all_the_same() -> None:
    found = decode(payload(text("a"), b"\x00", text("b"), b"\x09", struct.pack("<I", 2**32 - 1)))
    assert found == {"a": None, "b": 2**32 - 1}


def test_last_of_duplicate_keys_wins_and_any_version_is_read() -> None:
    assert decode(b"\xff\0\0\0" + text("a") + b"\x01" + text("a") + b"\x05\x01") == {"a": True}


def test_boolean_is_true_only_for_one() -> None:
    assert decode(payload(text("a"), b"\x05\x02")) == {"a": False}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x01\0\0", payload(b"\x01"), payload(text("a")), payload(text("a"), b"\x0c"),
        payload(text("a"), b"\xff"),
        payload(text("a"), b"\x02\0\0"), payload(text("a"), b"\x03", struct.pack("<I", 10**9)),
        payload(struct.pack("<I", 2**32 - 1)), payload(b"\x02\0\0\0\xff\xfe", b"\x01"),
        payload(text("a"), b"\x08", struct.pack("<I", 10**9)), payload(text("a"), b"\x0b", struct.pack("<I", 10**9)),
        array_bytes("float32", (10**9,), b"", 4 * 10**9 % 2**32), array_bytes("float32", (2,), b"1234"),
        array_bytes("float32", (2**32 - 1,) * 32, b""), array_bytes("uint8", (2**31, 2, 0), b""),
        array_bytes("object", (1,), bytes(8)), array_bytes("O", (1,), bytes(8)), array_bytes("f4,f4", (1,), bytes(8)),
        array_bytes("(2,)f4", (1,), bytes(8)), array_bytes("V8", (1,), bytes(8)), array_bytes("<U0", (10**9,), b""),
        array_bytes("float128", (1,), bytes(16)), array_bytes("nonsense", (1,), bytes(8)),
        array_bytes("datetime64[xx]", (1,), bytes(8)), array_bytes("<U1", (1,), b"\xff\xff\xff\xff"),
        array_bytes("f4" * 1000, (1,), bytes(4)), array_bytes("uint8", (1,) * 33, b"x"),
        payload(text("a"), b"\x06", text("L"), struct.pack("<III", 2**32 - 1, 2**32 - 1, 4)),
        payload(text("a"), b"\x06", text("L"), struct.pack("<III", 2, 2, 5), bytes(5)),
        payload(text("a"), b"\x06", text("LA"), struct.pack("<III", 1, 1, 2), bytes(2)),
        payload(text("a"), b"\x06", text("L"), struct.pack("<III", 0, 2**31, 0)),
    ],
)  # fmt: skip
def test_malformed_payload_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(RlxDecodeError):
        decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_a_typed_error(data: bytes) -> None:
    with suppress(RlxDecodeError):
        decode(payload(data))


def test_every_cut_of_a_message_is_a_typed_error() -> None:
    message = {"command": "update", "state": {"a": [1, 2.5, "x"], "b": np.zeros((2, 2))}, "reward": None}
    whole = encode(message)
    found = 0
    for end in range(len(whole)):
        try:
            decode(whole[:end])
        except RlxDecodeError:
            found += 1
    # A cut between two keys is a message with fewer of them.
    assert found == len(whole) - 3


def test_seventy_thousand_nested_lists_are_refused() -> None:
    deep = payload(text("a"), b"\x08\x01\0\0\0" * 70_000, b"\x01")
    with pytest.raises(RlxLimitError, match="nested deeper than the limit of 32"):
        decode(deep)
    dicts = payload(text("a"), (b"\x0b\x01\0\0\0" + text("k")) * 70_000, b"\x01")
    with pytest.raises(RlxLimitError, match="nested deeper"):
        decode(dicts)
    assert decode(payload(text("a"), b"\x08\x01\0\0\0" * 32, b"\x01"))


def test_limits_hold() -> None:
    with pytest.raises(RlxLimitError, match="over the limit of 10"):
        decode(bytes(11), Limits(max_bytes=10))
    many = payload(text("a"), b"\x08", struct.pack("<I", 101), b"\x01" * 101)
    with pytest.raises(RlxLimitError, match="items than the limit of 100"):
        decode(many, Limits(max_items=100))
    nested = encode({"a": [[1] * 9] * 11})
    with pytest.raises(RlxLimitError, match="items"):
        decode(nested, Limits(max_items=100))
    for wrong in ({"max_bytes": 0}, {"max_bytes": 10**9}, {"max_items": 0}, {"max_depth": 0}, {"max_depth": 201}):
        with pytest.raises(ValueError, match="must be"):
            Limits(**wrong)


def test_codec_and_client_need_no_torch() -> None:
    code = (
        "import sys, surreal.rlx.protocol.codec, surreal.rlx.client.agent_proxy;"
        "sys.exit(bool({'torch', 'redis'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
