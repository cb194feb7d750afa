"""`DirectConnection`: asks Redis several things at once, and reads large strings into memory that is theirs.

    connection = DirectConnection(client)
    head, data = connection.ask(("HMGET", name, "version", "id"), ("GET", part))

A client's parser gathers a reply in a buffer that grows, and copies it out: for strings of megabytes, more than the
network costs. Here each goes from the socket to its place, and what is asked together is one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions
from redis.exceptions import AskError, ReadOnlyError, RedisError, ResponseError

from surreal.distributed.connection.access.spoiled import clear_error
from surreal.distributed.connection.client import RedisClient, ScriptArg

#: Strings of at most so many bytes come as they are; and so many are read at once while a length is looked for.
SMALL_BYTES = 4096
_MAX_LINE_BYTES = 4096

#: Gives memory for a string of so many bytes.
Place = Callable[[int], bytearray | memoryview]


class DirectConnection:
    """Asks over a connection of its own; used by one thread.

    Args:
        client: whose server and pool of connections it uses; it connects with the first call.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._connection: Any = None
        self._ahead = b""  # received, but not read yet from `_at` on
        self._at = 0

    def ask(self, *commands: Sequence[ScriptArg], into: Place = bytearray) -> list[Any]:
        """Send commands together, and wait for all replies.

        Args:
            commands: each with its arguments.
            into: gives the memory of each string larger than `SMALL_BYTES`; what it raises ends the connection, and
                the rest of the replies is never read.

        Returns:
            For each command None, an int, a list of such, bytes, or what `into` gave for a large string.

        Raises:
            redis.exceptions.RedisError: the connection broke; or Redis refused one of them, the first if several.
        """
        try:
            if self._connection is None:
                self._connection = self._client.redis.connection_pool.get_connection()
            self._connection.check_health()
            packed = [self._connection.pack_command(*command) for command in commands]
            self._connection._sock.sendall(b"".join(piece for pieces in packed for piece in pieces))
            replies = [self._reply(into) for _ in commands]
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
                if isinstance(reply, (AskError, ReadOnlyError)):  # of a cluster: the next connection goes elsewhere
                    self.close()
                raise reply
        return replies

    def release(self) -> None:
        """Give the connection back to the pool; the next call takes one again."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._client.redis.connection_pool.release(connection)

    def close(self) -> None:
        """Drop the connection."""
        self._ahead, self._at = b"", 0
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.disconnect()
            self._client.redis.connection_pool.release(connection)

    def _reply(self, into: Place) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            error = self._connection._parser.parse_error(rest.decode("utf-8", "replace"))
            return clear_error(error) if isinstance(error, ResponseError) else error
        if kind == b"+":
            return rest
        if kind not in (b":", b"$", b"*"):
            raise exceptions.InvalidResponse(f"{line[:40]!r} is no reply")
        number = int(rest)
        if kind == b":":
            return number
        if number < 0:
            return None
        return self._string(number, into) if kind == b"$" else [self._reply(into) for _ in range(number)]

    def _line(self) -> bytes:
        while (end := self._ahead.find(b"\r\n", self._at)) < 0:
            if len(self._ahead) - self._at > _MAX_LINE_BYTES:
                raise exceptions.InvalidResponse("a reply begins with no line")
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
        """Receive until so many bytes are there to be read."""
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
