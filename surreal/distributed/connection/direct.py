"""Connections for parameters and gradients: large strings, and the notices that announce them.

* `DirectConnection`: large strings go from the socket straight to their place. redis-py's parser collects a reply in a
  growing buffer and copies it out. For strings of megabytes, that costs more than the network.
* `Subscription`: the newest message of some channels.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from redis import exceptions
from redis.exceptions import AskError, ReadOnlyError, RedisError, ResponseError

from surreal.base.errors import CodecError
from surreal.distributed.connection.retry import clear_error, is_transient
from surreal.distributed.connection.wire import HasRedis, OwnConnection, ScriptArg

if TYPE_CHECKING:
    from redis.client import PubSub

logger = logging.getLogger(__name__)

#: Size of the parts of large strings. For values of more than 8 MB, jemalloc takes new memory from the kernel each
#: time, which costs Redis twice as much as the copy. With its header, a part just fits into a size class of jemalloc.
PART_BYTES = (2 << 20) - 4096
MAX_PARTS = 4096
#: Parts that are requested before the first has arrived.
PARTS_AHEAD = 2
#: `DirectConnection` returns strings up to this size as bytes, and reads this much at once while it looks for a length.
SMALL_BYTES = 4096
_MAX_LINE_BYTES = 4096
_SUBSCRIBE_TIMEOUT_S, _POLL_S = 5.0, 0.1

#: Returns memory for a string of the given size, bytes.
Place = Callable[[int], bytearray | memoryview]


@dataclass(eq=False, repr=False)
class Memory:
    """Allocates memory for strings of bounded size."""

    max_bytes: int  #: larger strings are refused with `CodecError`
    _: KW_ONLY
    #: whether the first string after `free` may reuse the memory of an earlier one of its size. Allocating is
    #: expensive, and all parameters of a model have one size
    is_reused: bool = False

    def __post_init__(self) -> None:
        self._last = bytearray()
        self._is_free = False

    def free(self) -> Memory:
        """Release the memory returned so far; return itself."""
        self._is_free = self.is_reused
        return self

    def __call__(self, size: int) -> bytearray:
        if size > self.max_bytes:
            raise CodecError(f"{size} bytes are too many; at most {self.max_bytes} are accepted")
        if not self._is_free or size != len(self._last):
            self._last = bytearray(size)
        self._is_free = False
        return self._last


class DirectConnection(OwnConnection):
    """Sends several commands together, and reads large strings into the memory where they stay. Used by one thread.

    connection = DirectConnection(client)
    head, data = connection.ask(("HMGET", name, "version", "id"), ("GET", part))
    """

    def __init__(self, client: HasRedis) -> None:
        super().__init__(client)
        self._ahead = b""  # received, but not read yet from `_at` on
        self._at = 0

    def ask(self, *commands: Sequence[ScriptArg], into: Place = bytearray, most_ahead: int = sys.maxsize) -> list[Any]:
        """Send commands together, and wait for all replies.

        Args:
            commands: each with its arguments.
            into: returns the memory of each string larger than `SMALL_BYTES`. If it raises, the connection is closed.
            most_ahead: maximum commands without a reply, >= 1. Redis holds their replies in memory.

        Returns:
            For each command None, an int, a list of such, bytes, or what `into` returned for a large string.

        Raises:
            redis.exceptions.RedisError: the connection broke, or Redis refused a command (the first such error).
        """
        try:
            self.open()
            self._connection.check_health()
            packed = [b"".join(self._connection.pack_command(*command)) for command in commands]
            self._connection._sock.sendall(b"".join(packed[:most_ahead]))
            replies = []
            for i in range(len(packed)):
                replies.append(self._reply(into))
                if most_ahead + i < len(packed):
                    self._connection._sock.sendall(packed[most_ahead + i])
        except TimeoutError as error:
            self.close()
            raise exceptions.TimeoutError(f"no answer in time: {error}") from error
        except OSError as error:
            self.close()
            raise exceptions.ConnectionError(f"the connection broke: {error}") from error
        except BaseException:
            self.close()
            raise
        for reply in replies:
            if isinstance(reply, RedisError):
                if isinstance(reply, (AskError, ReadOnlyError)):  # in a cluster, the next connection goes elsewhere
                    self.close()
                raise reply
        return replies

    def close(self) -> None:
        self._ahead, self._at = b"", 0
        super().close()

    def _reply(self, into: Place) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            error = self._connection._parser.parse_error(rest.decode("utf-8", "replace"))
            return clear_error(error) if isinstance(error, ResponseError) else error
        if kind == b"+":
            return rest
        if kind not in (b":", b"$", b"*"):
            raise exceptions.InvalidResponse(f"{line[:40]!r} is not a reply")
        number = int(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        return self._string(number, into) if kind == b"$" else [self._reply(into) for _ in range(number)]

    def _line(self) -> bytes:
        while (end := self._ahead.find(b"\r\n", self._at)) < 0:
            if len(self._ahead) - self._at > _MAX_LINE_BYTES:
                raise exceptions.InvalidResponse("a reply does not begin with a line")
            self._receive()
        line, self._at = self._ahead[self._at : end], end + 2
        return line

    def _string(self, size: int, into: Place) -> Any:
        if size <= SMALL_BYTES:
            self._need(size + 2)
            start, self._at = self._at, self._at + size + 2
            return self._ahead[start : start + size]
        memory = into(size)
        view = memoryview(memory)
        there = self._ahead[self._at : self._at + size]
        view[: len(there)] = there
        self._at += len(there)
        view = view[len(there) :]
        while view:
            view = view[self._received(self._connection._sock.recv_into(view)) :]
        self._need(2)
        self._at += 2
        return memory

    def _need(self, size: int) -> None:
        while len(self._ahead) - self._at < size:
            self._receive()

    def _receive(self) -> None:
        found = self._connection._sock.recv(SMALL_BYTES)
        self._received(len(found))
        self._ahead, self._at = self._ahead[self._at :] + found, 0

    def _received(self, number: int) -> int:
        if number == 0:
            raise exceptions.ConnectionError("the server closed the connection")
        return number


class Subscription:
    """The messages of some channels. Used by one thread."""

    def __init__(self, client: HasRedis, channels: Sequence[str]) -> None:
        self._client = client
        self._channels = channels
        self._pubsub: PubSub | None = None

    @property
    def is_open(self) -> bool:
        """Whether messages arrive; False before `open`, and after the connection broke."""
        return self._pubsub is not None

    def open(self) -> None:
        """Subscribe, and wait for the confirmations; raises `RedisError` if Redis refuses or does not answer."""
        pubsub: PubSub = self._client.redis.pubsub()  # type: ignore[no-untyped-call]
        try:
            pubsub.subscribe(*self._channels)
            deadline, confirmed = time.monotonic() + _SUBSCRIBE_TIMEOUT_S, 0
            while confirmed < len(self._channels):
                if time.monotonic() > deadline:
                    raise exceptions.TimeoutError("no confirmation of the subscription")
                message: Any = pubsub.get_message(timeout=_POLL_S)
                confirmed += message is not None and message["type"] == "subscribe"
        except BaseException:
            pubsub.close()
            raise
        self._pubsub = pubsub

    def newest(self, timeout_s: float) -> bytes | None:
        """Wait for a message, and take all that came; return the last, None without one or if the connection broke."""
        if self._pubsub is None:
            return None
        newest: bytes | None = None
        try:
            while (message := self._pubsub.get_message(timeout=timeout_s if newest is None else 0.0)) is not None:
                newest = message["data"] if message["type"] == "message" else newest
        except RedisError as error:
            self.close()
            if not is_transient(error):
                raise
            logger.debug("the subscription ended: %s", error)
            return None
        return newest

    def close(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            pubsub.close()
