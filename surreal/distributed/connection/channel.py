"""ScriptChannel: a connection of its own on which one script call may be under way while the caller goes on.

What is large goes beside the script, not through it: strings are stored first, by SETEX in the same pipeline, and the
script renames them. As an argument one would be copied into Lua and back, at four to six times the cost for the server.

The sender begins to store a chunk, steps its environments, and takes the answer when the next chunk is ready: so the
round trip and the server's work cost it nothing. Never more than one call is under way: with two, a chunk that was
refused could be overtaken by the next one and then be taken for a duplicate.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions
from redis.exceptions import NoScriptError, OutOfMemoryError, RedisError, ResponseError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import is_out_of_memory
from surreal.distributed.connection.scripts import load_script

#: Pieces smaller than this are joined: one system call is dearer than a small copy.
_JOIN_BYTES = 64 << 10
#: Sent by one system call at most.
_MOST_PIECES = 256
#: How long a string waits for the script that takes it, s: longer than they are ever apart.
STAGE_TTL_S = 60
#: Asked of the kernel, which gives at most what its settings allow.
_SEND_BUFFER_BYTES = 1 << 20


class ScriptChannel:
    """Sends script calls, each with strings stored before it; used by one thread.

    Args:
        client: whose server and pool of connections it uses; it connects with the first call.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._connection: Any = None
        self.is_busy = False
        self._repeat: tuple[str, Sequence[str], Sequence[Any], Mapping[str, Sequence[memoryview]]] | None = None

    def begin(
        self, name: str, keys: Sequence[str], args: Sequence[Any], contents: Mapping[str, Sequence[memoryview]]
    ) -> None:
        """Store strings for `STAGE_TTL_S`, and call a script; nothing of it is waited for.

        Args:
            name: of the script.
            keys: of the script.
            args: of the script.
            contents: pieces of each string, by its key; they must not change until `finish`.

        Raises:
            redis.exceptions.RedisError: the connection broke; whether the call was executed is not known.
        """
        if self.is_busy:
            raise RuntimeError("a call is under way; finish it first")
        if self._connection is None:
            self._connect()
        self._repeat = (name, keys, args, contents)
        self._send(b"EVALSHA", load_script(name).sha1.encode())

    def finish(self) -> Any:
        """Wait for the reply of the call under way.

        Raises:
            redis.exceptions.RedisError: the connection broke, or the script failed; the channel is ready for `begin`.
        """
        try:
            try:
                return self._read()
            except NoScriptError:
                if self._repeat is None:
                    raise
                self._send(b"EVAL", load_script(self._repeat[0]).text)
                return self._read()
        except ResponseError as error:
            if is_out_of_memory(error) and not isinstance(error, OutOfMemoryError):
                raise OutOfMemoryError(str(error)) from error
            raise
        finally:
            self._repeat = None

    def is_ready(self) -> bool:
        """Whether `finish` would return, or raise, at once."""
        try:
            return self.is_busy and bool(self._connection.can_read(0))
        except RedisError:
            return True

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            connection, self._connection, self.is_busy = self._connection, None, False
            connection.disconnect()
            self._client.redis.connection_pool.release(connection)

    def _connect(self) -> None:
        """Take a connection. On a unix socket a whole chunk should fit into the kernel's buffer, so nobody waits."""
        self._connection = self._client.redis.connection_pool.get_connection()
        sock = self._connection._sock
        if sock is not None and sock.family == getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)

    def _send(self, command: bytes, script: bytes) -> None:
        if self._repeat is None:
            raise RuntimeError("there is no call to send")
        _, keys, args, contents = self._repeat
        calls = [_pack(["SETEX", key, STAGE_TTL_S], content) for key, content in contents.items()]
        calls.append(_pack([command, script, len(keys), *keys, *args[:-1]], [memoryview(args[-1])]))
        packed = calls[0]
        for call in calls[1:]:
            packed = [*packed[:-1], packed[-1] + call[0], *call[1:]]
        try:
            self._send_packed(packed)
        except BaseException:
            self.close()
            raise
        self.is_busy = True

    def _send_packed(self, packed: Sequence[Any]) -> None:
        """Send all pieces in one system call, if possible: each one would wake the server for a part of a string."""
        sock = self._connection._sock
        if isinstance(sock, ssl.SSLSocket) or sock is None:
            self._connection.send_packed_command(packed)
            return
        self._connection.check_health()
        left = [memoryview(piece) for piece in packed if len(piece)]
        try:
            while left:
                sent = sock.sendmsg(left[:_MOST_PIECES])
                while left and sent >= len(left[0]):
                    sent -= len(left.pop(0))
                if sent:
                    left[0] = left[0][sent:]
        except TimeoutError as error:
            raise exceptions.TimeoutError(f"nothing could be sent in time: {error}") from error
        except OSError as error:
            raise exceptions.ConnectionError(f"the connection broke: {error}") from error

    def _read(self) -> Any:
        try:
            for _ in self._repeat[3] if self._repeat else ():
                with suppress(ResponseError):  # not stored, at maxmemory; the script meets the same, or finds nothing
                    self._connection.read_response()
            reply = self._connection.read_response()
        except ResponseError:
            self.is_busy = False
            raise
        except BaseException:
            self.close()
            raise
        self.is_busy = False
        return reply


def _pack(args: Sequence[Any], last: Sequence[memoryview]) -> list[Any]:
    """RESP of a command whose last argument comes in pieces: small ones joined, large ones as they are."""
    parts = [b"*%d\r\n" % (len(args) + 1)]
    for arg in args:
        value = arg if isinstance(arg, bytes) else str(arg).encode()
        parts += (b"$%d\r\n" % len(value), value, b"\r\n")
    size = sum(piece.nbytes for piece in last)
    parts.append(b"$%d\r\n" % size)
    if size <= _JOIN_BYTES:
        return [b"".join([*parts, *last, b"\r\n"])]
    return [b"".join(parts), *last, b"\r\n"]
