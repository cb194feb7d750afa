"""RangeReader: many byte ranges of strings in one round trip, on a separate connection.

The remote observations of a replay use it. A request is one pipeline of GETRANGE, without a transaction. Its replies go
into one reused buffer, and are handed over in place. All lengths are known beforehand, so an expected reply is checked
at once, vectorized; any other is parsed step by step. An ECHO of random bytes ends each pipeline, so its end is found
even if ranges are missing.
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.wire import OwnConnection

#: Most bytes of replies under way: more would only fill the server's memory.
_MAX_UNDER_WAY_BYTES = 1 << 20
_MIN_BUFFER_BYTES = 1 << 16
_MAX_LINE_BYTES = 512
_DOLLAR, _NEWLINE = ord("$"), ord("\n")
_POWERS_OF_TEN = 10 ** np.arange(1, 12)


class RangeRequest(NamedTuple):
    """One pipeline."""

    commands: bytes  #: GETRANGE commands, see `getrange_prefix`
    lengths: NDArray[np.int64]  #: [R] expected bytes of each, >= 1


class RangeReply(NamedTuple):
    """The replies; valid until the next call of the reader."""

    buffer: NDArray[np.uint8]
    offsets: NDArray[np.int64]  #: [R] start of each range in the buffer
    is_whole: NDArray[np.bool_] | None  #: [R] whether each range came; None: all came, else the offsets are void


def getrange_prefix(key: str) -> bytes:
    """Encode the beginning of a GETRANGE command; two numbers from `bulk` complete it."""
    name = key.encode()
    return b"*4\r\n$8\r\nGETRANGE\r\n$%d\r\n%b\r\n" % (len(name), name)


def bulk(number: int) -> bytes:
    """Encode a number as an argument of a command."""
    text = b"%d" % number
    return b"$%d\r\n%b\r\n" % (len(text), text)


class RangeReader(OwnConnection):
    """Reads ranges; requests are answered in order. Used by one thread."""

    def __init__(self, client: RedisClient) -> None:
        super().__init__(client)
        self._sock: Any = None
        self._asked: deque[RangeRequest] = deque()
        self._num_sent = self._under_way_bytes = 0
        token = secrets.token_hex(8).encode()
        self._echo = b"*2\r\n$4\r\nECHO\r\n$16\r\n%b\r\n" % token
        self._end = b"$16\r\n%b\r\n" % token
        self._buffer: NDArray[np.uint8] = np.empty(_MIN_BUFFER_BYTES, np.uint8)
        self._received = 0

    def ask(self, request: RangeRequest) -> None:
        """Queue a request, and send it if few bytes are in flight; `answer` reports a broken connection."""
        self._asked.append(request)
        if self._connection is not None:
            try:
                self._send()
            except RedisConnectionError:
                self.close()

    def answer(self) -> RangeReply:
        """Wait for the reply to the oldest request; after a `RedisError`, another call sends all requests again."""
        try:
            self._sock = self.open()
            self._send()
            request = self._asked[0]
            reply = self._receive(request.lengths)
            self._asked.popleft()
            self._num_sent -= 1
            self._under_way_bytes -= int(request.lengths.sum())
            self._send()  # the server works on the next one while the caller copies from this one
        except BaseException:
            self.close()
            raise
        return reply

    def forget(self) -> None:
        self.close()
        self._asked.clear()

    def close(self) -> None:
        """Drop the connection; `answer` sends the unanswered requests again."""
        self._num_sent = self._under_way_bytes = self._received = 0
        super().close()

    def _send(self) -> None:
        """Send the unsent requests: always the first, and others while few bytes are in flight."""
        while self._num_sent < len(self._asked):
            request = self._asked[self._num_sent]
            expected = int(request.lengths.sum())
            if self._num_sent and self._under_way_bytes + expected > _MAX_UNDER_WAY_BYTES:
                return
            try:
                self._sock.sendall(request.commands + self._echo)
            except OSError as error:
                raise RedisConnectionError(f"the connection broke while ranges were asked for: {error}") from error
            self._num_sent += 1
            self._under_way_bytes += expected

    def _receive(self, lengths: NDArray[np.int64]) -> RangeReply:
        heads = np.searchsorted(_POWERS_OF_TEN, lengths, side="right") + 4  # "$", digits, CR, LF
        ends = np.cumsum(heads + lengths + 2)
        offsets = ends - lengths - 2
        total = int(ends[-1]) + len(self._end)
        self._reserve(total)
        while self._received < total and not (self._received and self._ends_here(self._received)):
            self._recv(total)
        buffer = self._buffer
        is_expected = (
            self._received >= total
            and self._ends_here(total)
            and bool((buffer[offsets - heads] == _DOLLAR).all())
            and bool((buffer[offsets - 1] == _NEWLINE).all())
        )
        if is_expected:
            self._keep_behind(total)
            return RangeReply(buffer, offsets, None)
        is_whole, end = self._walk(lengths)
        self._keep_behind(end)
        return RangeReply(buffer, offsets, is_whole)

    def _walk(self, lengths: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
        """Parse the replies one by one; return which came whole, and where they end."""
        is_whole = np.zeros(len(lengths), np.bool_)
        position, error = 0, None
        for i, wanted in enumerate(lengths.tolist()):
            line, position = self._line(position)
            if line[:1] == b"-":
                error = error or line.decode(errors="replace")
                continue
            length = _length_of(line)
            position += length + 2
            is_whole[i] = length == wanted
        line, position = self._line(position)
        position += _length_of(line) + 2
        self._fill(position)
        if not self._ends_here(position):
            raise RedisConnectionError("Redis answered with something else than was asked for")
        if error is not None and not error.startswith("-WRONGTYPE"):
            raise ResponseError(error)
        return is_whole, position

    def _line(self, position: int) -> tuple[bytes, int]:
        end = position
        while True:
            end += 1
            self._fill(end)
            if self._buffer[end - 1] == _NEWLINE:
                return self._buffer[position : end - 2].tobytes(), end
            if end - position > _MAX_LINE_BYTES:
                raise RedisConnectionError("Redis answered with something else than was asked for")

    def _fill(self, size: int) -> None:
        self._reserve(size)
        while self._received < size:
            self._recv(len(self._buffer))

    def _recv(self, limit: int) -> None:
        try:
            number = self._sock.recv_into(self._buffer[self._received : limit].data)
        except TimeoutError as error:
            raise RedisTimeoutError("Redis did not send what was asked for in time") from error
        except OSError as error:
            raise RedisConnectionError(f"the connection broke while ranges were read: {error}") from error
        if number == 0:
            raise RedisConnectionError("Redis closed the connection while ranges were read")
        self._received += number

    def _reserve(self, size: int) -> None:
        if size > len(self._buffer):
            grown = np.empty(size + size // 4, np.uint8)
            grown[: self._received] = self._buffer[: self._received]
            self._buffer = grown

    def _ends_here(self, position: int) -> bool:
        return self._buffer[max(position - len(self._end), 0) : position].tobytes() == self._end

    def _keep_behind(self, end: int) -> None:
        """Move the bytes of the next reply to a new buffer, because the caller still reads this one."""
        behind = self._received - end
        if behind:
            old, self._buffer = self._buffer, np.empty(len(self._buffer), np.uint8)
            self._buffer[:behind] = old[end : self._received]
        self._received = behind


def _length_of(line: bytes) -> int:
    if line[:1] != b"$" or not line[1:].isdigit():
        raise RedisConnectionError("Redis answered with something else than was asked for")
    return int(line[1:])
