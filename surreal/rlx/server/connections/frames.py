"""Cuts what comes in on a WebSocket connection into its frames (RFC 6455, section 5.2), without a look at them.

The protocol's parser takes everything it is given in one go, and a single read may hold thousands of frames: the
connection gives it one at a time.
"""

from __future__ import annotations

#: Bytes behind the first two that say how long a frame is, by what stands there for its length.
_LENGTH_BYTES = {126: 2, 127: 8}


class FrameCutter:
    """Holds the bytes that no parser has had yet."""

    __slots__ = ("_data", "_position", "_rest")

    def __init__(self) -> None:
        self._data = b""
        self._position = 0
        self._rest = 0  # bytes of the last piece's frame that were not there yet

    @property
    def pending(self) -> int:
        """Bytes that are held."""
        return len(self._data) - self._position

    def add(self, data: bytes) -> None:
        """Add bytes that came in."""
        self._data = self._data[self._position :] + data
        self._position = 0

    def has_piece(self, *, is_open: bool) -> bool:
        """Whether there is something to take; half of a frame's head is nothing."""
        return self._end(is_open) > self._position

    def take(self, *, is_open: bool) -> bytes:
        """Take a frame, or as much of it as there is; before the connection is open, a line of its HTTP request."""
        start, end = self._position, self._end(is_open)
        self._position = min(end, len(self._data))
        self._rest = end - self._position
        return self._data[start : self._position]

    def _end(self, is_open: bool) -> int:
        """Give where the next piece ends, which may be beyond what is there."""
        data, start = self._data, self._position
        if start == len(data):
            return start
        if self._rest:
            return start + self._rest
        return start + _frame_bytes(data, start) if is_open else data.find(b"\n", start) + 1 or len(data)


def _frame_bytes(data: bytes, start: int) -> int:
    """Give the length of the frame that begins here; 0 if its head is not whole."""
    if len(data) < start + 2:
        return 0
    mark = data[start + 1]
    num_length_bytes = _LENGTH_BYTES.get(mark & 0x7F, 0)
    head = 2 + num_length_bytes
    if len(data) < start + head:
        return 0
    length = int.from_bytes(data[start + 2 : start + head], "big") if num_length_bytes else mark & 0x7F
    return head + (4 if mark & 0x80 else 0) + length
