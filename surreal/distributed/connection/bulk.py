"""`BulkReader`: reads large strings from Redis into memory that is theirs, without a copy on the way.

A client's parser gathers a reply in a buffer that grows, and copies it out: for strings of megabytes, more than the
network costs. Here each goes from the socket to its place.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redis import exceptions

from surreal.distributed.connection.client import RedisClient
from surreal.errors import CodecError

#: Read at once while the length of a reply is looked for.
_HEAD_BYTES = 4096
_MAX_LINE_BYTES = 512


class BulkReader:
    """Reads strings over a connection of its own; used by one thread.

    Args:
        client: whose server and pool of connections it uses; it connects with the first call.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._connection: Any = None

    def get_into(self, names: Sequence[str], buffer: memoryview) -> int | None:
        """Read strings, one behind the other, into a buffer.

        Args:
            names: of the strings.
            buffer: of bytes, with room for all of them.

        Returns:
            How many bytes they are; None if one is not there.

        Raises:
            CodecError: they are larger than the buffer.
            redis.exceptions.RedisError: the connection broke, or Redis refused.
        """
        filled = 0
        # One after the other: nothing that nobody wants is on its way when one is too large or missing.
        for name in names:
            found = self._get(name, partial(_room, buffer[filled:]))
            if found is None:
                return None
            filled += len(found)
        return filled

    def get(self, name: str, max_bytes: int) -> bytearray | None:
        """Read one string into memory of its own; None if it is not there.

        Raises:
            CodecError, redis.exceptions.RedisError: as `get_into`.
        """
        memory = bytearray()

        def make(size: int) -> memoryview:
            nonlocal memory
            if size > max_bytes:
                raise CodecError(f"{size} bytes are too many; at most {max_bytes} are accepted")
            memory = bytearray(size)
            return memoryview(memory)

        return memory if self._get(name, make) is not None else None

    def release(self) -> None:
        """Give the connection back to the pool; the next call takes one again."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._client.redis.connection_pool.release(connection)

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.disconnect()
            self._client.redis.connection_pool.release(connection)

    def _get(self, name: str, place: Callable[[int], memoryview]) -> memoryview | None:
        """Read a string to where `place` of its size says; any error drops the connection."""
        try:
            if self._connection is None:
                self._connection = self._client.redis.connection_pool.get_connection()
            self._connection.send_command("GET", name)
            return self._read(place)
        except TimeoutError as error:
            self.close()
            raise exceptions.TimeoutError(f"no answer in time: {error}") from error
        except OSError as error:
            self.close()
            raise exceptions.ConnectionError(f"the connection broke: {error}") from error
        except BaseException:
            self.close()
            raise

    def _read(self, place: Callable[[int], memoryview]) -> memoryview | None:
        line, ahead = self._read_line()
        if line[:1] == b"-":
            raise exceptions.ResponseError(line.decode("utf-8", "replace"))  # with the dash, as in a script's errors
        if line[:1] != b"$":
            raise exceptions.InvalidResponse(f"{line[:40]!r} is no string")
        size = int(line[1:])
        if size < 0:
            return None
        buffer = place(size)
        buffer[: len(ahead[:size])] = ahead[:size]
        self._fill(buffer[len(ahead) : size])
        self._fill(memoryview(bytearray(max(0, min(2, size + 2 - len(ahead))))))
        return buffer

    def _read_line(self) -> tuple[bytes, bytes]:
        """The reply's first line, and what came with it: there is nothing behind this reply."""
        head = bytearray()
        chunk = bytearray(_HEAD_BYTES)
        while b"\r\n" not in head:
            if len(head) > _MAX_LINE_BYTES:
                raise exceptions.InvalidResponse("a reply begins with no line")
            head += chunk[: self._receive_into(memoryview(chunk))]
        line, _, ahead = bytes(head).partition(b"\r\n")
        return line, ahead

    def _fill(self, view: memoryview) -> None:
        while view:
            view = view[self._receive_into(view) :]

    def _receive_into(self, view: memoryview) -> int:
        sock: socket.socket = self._connection._sock
        number = sock.recv_into(view)
        if number == 0:
            raise exceptions.ConnectionError("the server closed the connection")
        return number


def _room(buffer: memoryview, size: int) -> memoryview:
    if size > len(buffer):
        raise CodecError(f"{size} bytes are too many: there is room for {len(buffer)}")
    return buffer[:size]
