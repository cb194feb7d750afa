"""Frames on a byte stream: `LENGTH ':' PAYLOAD ','` (a netstring), LENGTH in at most nine ASCII digits."""

from __future__ import annotations

from surreal.rlx.protocol.errors import DEFAULT_LIMITS, MAX_FRAME_BYTES, Limits, RlxEncodeError, RlxFrameError

_MAX_DIGITS = 9
_COLON, _COMMA = ord(":"), ord(",")


def frame(payload: bytes) -> bytes:
    """Wrap a payload for a byte stream; raises `RlxEncodeError` if it is longer than nine digits can say."""
    if len(payload) > MAX_FRAME_BYTES:
        raise RlxEncodeError(f"a message has {len(payload)} bytes; at most {MAX_FRAME_BYTES} fit into a frame")
    return b"%d:%b," % (len(payload), payload)


class FrameReader:
    """Takes a byte stream apart, whatever pieces it arrives in. It allocates only for bytes that have arrived.

        for payload in reader.feed(sock.recv(65536)):
            handle(decode(payload))

    Args:
        limits: `max_bytes` bounds a payload; a longer one is refused when its length is read.
    """

    __slots__ = ("_broken", "_buffer", "_needed", "max_bytes", "pending")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.max_bytes = limits.max_bytes  #: the bound; it may be changed between two calls
        self._buffer = bytearray()
        self._needed = 0  # bytes of the buffer that must be there before it is worth another look
        self._broken: str | None = None
        self.pending = 0  #: bytes of an unfinished frame that are held

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Add bytes, and return the payloads that they complete, in order. Raises `RlxFrameError` if the stream is
        malformed, or a length is over the limit: payloads before it are in the error's `frames`, and nothing can be
        read further.
        """
        if self._broken is not None:
            raise RlxFrameError(self._broken)
        if self._buffer:
            self._buffer += data
            self.pending = len(self._buffer)
            if self.pending < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer = bytearray()
        elif type(data) is not bytes:
            data = bytes(data)
        self._needed = self.pending = 0
        frames: list[bytes] = []
        position, size = 0, len(data)
        while position < size:
            colon = data.find(b":", position, position + _MAX_DIGITS + 1)
            if colon < 0 and size - position <= _MAX_DIGITS and (data[position:].isdigit()):
                break
            digits = data[position:colon] if colon >= 0 else b""
            if not digits.isdigit():
                self._fail(f"expected a length, got {data[position : position + 12]!r}", frames)
            length = int(digits)
            if length > self.max_bytes:
                self._fail(f"a frame of {length} bytes is over the limit of {self.max_bytes}", frames)
            end = colon + 1 + length
            if end >= size:
                self._needed = end + 1 - position
                break
            if data[end] != _COMMA:
                self._fail(f"expected a comma after {length} bytes, got {data[end : end + 1]!r}", frames)
            frames.append(data[colon + 1 : end])
            position = end + 1
        if position < size:
            self._buffer += data[position:] if position else data
            self.pending = size - position
        return frames

    def _fail(self, message: str, frames: list[bytes]) -> None:
        self._broken = message
        raise RlxFrameError(message, frames)
