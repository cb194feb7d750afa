"""Frames on a byte stream, in whatever pieces they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.rlx.protocol.errors import Limits, RlxEncodeError, RlxFrameError
from surreal.rlx.protocol.framing import FrameReader, frame


def test_frame_is_a_netstring() -> None:
    assert frame(b"hello") == b"5:hello,"
    assert frame(b"") == b"0:,"


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_frames_arrive_whole_however_they_are_split(payloads: list[bytes], sizes: list[int]) -> None:
    stream, reader, found = b"".join(frame(payload) for payload in payloads), FrameReader(), []
    position, turn = 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        found += reader.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert found == payloads
    assert reader.pending == 0


def test_byte_by_byte_also_inside_the_length() -> None:
    reader, found = FrameReader(), []
    for byte in b"0012:" + b"x" * 12 + b",1:y,":
        found += reader.feed(bytes([byte]))
    assert found == [b"x" * 12, b"y"]


@pytest.mark.parametrize(
    "data",
    [b":", b",", b"a", b"-1:", b" 5:", b"5x:", b"0000000005:hello,", b"1234567890", b"5:hello!", b"\xd9\xa1:x,"],
)
def test_malformed_framing_is_refused(data: bytes) -> None:
    reader = FrameReader()
    with pytest.raises(RlxFrameError):
        reader.feed(data)
    with pytest.raises(RlxFrameError):
        reader.feed(b"1:x,")


def test_nine_digits_are_enough_and_leading_zeros_are_fine() -> None:
    assert FrameReader().feed(b"000000002:ab,") == [b"ab"]


def test_length_over_the_limit_is_refused_before_anything_follows() -> None:
    reader = FrameReader(Limits(max_bytes=100))
    assert reader.feed(b"100") == []
    with pytest.raises(RlxFrameError, match="over the limit of 100"):
        reader.feed(b"0:")
    with pytest.raises(RlxFrameError, match="999999999 bytes is over the limit"):
        FrameReader().feed(b"999999999:")


def test_whole_frames_before_the_malformed_bytes_are_not_lost() -> None:
    with pytest.raises(RlxFrameError) as caught:
        FrameReader().feed(b"1:a,2:bc,oops")
    assert caught.value.frames == (b"a", b"bc")


def test_announced_length_takes_no_memory_before_it_arrives() -> None:
    reader = FrameReader(Limits(max_bytes=900_000_000))
    assert reader.feed(b"900000000:abc") == []
    assert reader.pending == 13


def test_what_no_length_can_say_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 10**9

    with pytest.raises(RlxEncodeError, match="at most 999999999"):
        frame(Huge())
