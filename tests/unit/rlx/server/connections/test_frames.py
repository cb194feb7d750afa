"""Frames of a WebSocket, cut out of a stream."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode

from surreal.rlx.server.connections.http import FrameCutter

SIZES = (0, 1, 125, 126, 127, 65_535, 65_536, 70_000)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize(("split", "sizes"), [(1, SIZES[:5]), (3, SIZES[:5]), (1000, SIZES), (10**9, SIZES)])
def test_frames_are_cut_where_they_end(split: int, sizes: tuple[int, ...], *, mask: bool) -> None:
    frames = [Frame(Opcode.BINARY, b"x" * size).serialize(mask=mask) for size in sizes]
    stream, cutter, found, starts = b"".join(frames), FrameCutter(), b"", {0}
    for frame in frames:
        starts.add(max(starts) + len(frame))
    for start in range(0, len(stream), split):
        cutter.add(stream[start : start + split])
        while cutter.has_piece(is_open=True):
            before = len(found)
            found += cutter.take(is_open=True)
            # A piece is never more than one frame.
            assert not [place for place in starts if before < place < len(found)]
    assert found == stream
    assert cutter.pending == 0


def test_half_a_head_is_kept() -> None:
    cutter = FrameCutter()
    cutter.add(b"\x82")
    assert not cutter.has_piece(is_open=True)
    cutter.add(b"\xfe\x01")
    assert not cutter.has_piece(is_open=True)
    cutter.add(b"\x00abc")
    assert cutter.take(is_open=True) == b"\x82\xfe\x01\x00abc"


def test_lines_come_before_the_connection_is_open() -> None:
    cutter = FrameCutter()
    cutter.add(b"GET / HTTP/1.1\r\na: b\r\n\r\n\x89\x00")
    lines = [cutter.take(is_open=False) for _ in range(3)]
    assert lines == [b"GET / HTTP/1.1\r\n", b"a: b\r\n", b"\r\n"]
    assert cutter.take(is_open=True) == b"\x89\x00"
