"""Everything below redis-py's commands. Only this file and `direct` use private parts of redis-py (a test names them).

- `load_script`: the Lua scripts of `connection/lua`.
- `connection_class`: connections with clear errors, which follow a hash slot or a primary from server to server.
- `ScriptChannel`: one script call at a time, while its caller continues.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

import redis
from redis import exceptions
from redis.connection import Connection, SSLConnection
from redis.exceptions import AskError, NoScriptError, ReadOnlyError, RedisError, ResponseError

from surreal.distributed.connection.retry import clear_error, is_demoted

ScriptArg = bytes | bytearray | memoryview | str | int | float
#: Pieces smaller than this are joined: one system call is dearer than a small copy.
_JOIN_BYTES = 64 << 10
#: Maximum pieces sent by one system call.
_MOST_PIECES = 256
#: Lifetime of a string that waits for its script, s. They are never that far apart.
STAGE_TTL_S = 60
#: Requested send buffer. The kernel grants at most what its settings allow.
_SEND_BUFFER_BYTES = 1 << 20


class HasRedis(Protocol):
    """A `RedisClient`, as far as its connections are concerned."""

    redis: redis.Redis


class ServerMap(Protocol):
    """A map of several servers: of a Redis Cluster, or of a primary and its replicas."""

    def primary_of(self, hash_slot: int) -> tuple[str, int]: ...
    def forget(self) -> None: ...


class Script(NamedTuple):
    """A script's text, and the digest that EVALSHA takes."""

    text: bytes
    sha1: str


@cache
def load_script(name: str) -> Script:
    """Read `lua/<name>.lua`; raises `ValueError` if there is no such script.

    A script is atomic on its server, so each does one whole step of the data path. Scripts run on Redis 6.2 and later,
    and name all their keys in KEYS (one hash tag each), so they also run in a Redis Cluster.
    """
    resource = files("surreal.distributed.connection") / "lua" / f"{name}.lua"
    if not name.isidentifier() or not resource.is_file():
        raise ValueError(f"there is no Lua script named {name!r} in surreal/distributed/connection/lua")
    text = resource.read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def connection_class(base: type[Connection], *, follows_hash_slot: bool = False) -> Any:
    """Make a class of connections that raise clear errors, and leave demoted servers or follow a hash slot."""
    if follows_hash_slot:
        base = _SlotSSLConnection if issubclass(base, SSLConnection) else _SlotConnection

    class ClearErrorConnection(base):  # type: ignore[misc, valid-type]
        def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return super().read_response(*args, **options)
            except ResponseError as error:
                if is_demoted(error):
                    self.disconnect()
                clear = clear_error(error)
                if clear is error:
                    raise
                raise clear from error

    return ClearErrorConnection


class _SlotMixin:
    """A connection to the server that a map names; it breaks when the map's answer was wrong.

    In a cluster, that is the server that has a hash slot; behind Sentinels, the primary.
    """

    host: str
    port: int

    def __init__(self, *, server_map: ServerMap, hash_slot: int, **options: Any) -> None:
        self._map = server_map
        self._hash_slot = hash_slot
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = self._map.primary_of(self._hash_slot)
        return super()._connect()  # type: ignore[misc]

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        # Always: a server may hang and still accept connections, while another one has taken its place.
        self._map.forget()
        super().disconnect(*args, **kwargs)  # type: ignore[misc]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except (AskError, ReadOnlyError) as error:  # a MovedError is an AskError
            self.disconnect()
            raise exceptions.ConnectionError(f"hash slot {self._hash_slot} is elsewhere now: {error}") from error


class _SlotConnection(_SlotMixin, Connection):
    pass


class _SlotSSLConnection(_SlotMixin, SSLConnection):
    pass


class _Call(NamedTuple):
    name: str
    keys: Sequence[str]
    args: Sequence[Any]
    contents: Mapping[str, Sequence[memoryview]]


_NO_CALL = _Call("", (), (), {})


class OwnConnection:
    """A connection that one object keeps out of the client's pool, from its first use on. Used by one thread."""

    def __init__(self, client: HasRedis) -> None:
        self._client = client
        self._connection: Any = None

    def open(self) -> Any:
        """Take a connection if there is none; return its socket, None if it is not connected."""
        if self._connection is None:
            self._connection = self._client.redis.connection_pool.get_connection()
        return self._connection._sock

    def release(self) -> None:
        """Return the connection to the pool; the next call takes one again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._client.redis.connection_pool.release(connection)

    def close(self) -> None:
        """Drop the connection; the next call connects again."""
        if self._connection is not None:
            self._connection.disconnect()
        self.release()


class ScriptChannel(OwnConnection):
    """Sends script calls on a separate connection, each with strings stored before it. Used by one thread.

    Large strings do not go through the script: SETEX stores them first in the same pipeline, and the script renames
    them. As an argument, a string would be copied into Lua and back, at four to six times the cost for the server.

    The sender begins to store a chunk, steps its environments, and takes the answer when the next chunk is ready. So
    the round trip and the server's work cost it nothing. Only one call is under way: with two, the second chunk could
    overtake a first one that was refused, and the first would then be taken for a duplicate.
    """

    def __init__(self, client: HasRedis) -> None:
        super().__init__(client)
        self.is_busy = False
        self._call = _NO_CALL

    def begin(
        self, name: str, keys: Sequence[str], args: Sequence[Any], contents: Mapping[str, Sequence[memoryview]]
    ) -> None:
        """Store strings for `STAGE_TTL_S` and call a script, without waiting for the answers. The strings' pieces must
        not change until `finish`. After a redis-py error, the call may have been executed or not.
        """
        if self.is_busy:
            raise RuntimeError("a call is under way; finish it first")
        if self._connection is None:
            sock = self.open()
            if sock is not None and sock.family == getattr(socket, "AF_UNIX", None):
                # The kernel's buffer should hold a whole chunk, so that no process waits.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._call = _Call(name, keys, args, contents)
        self._send(b"EVALSHA", load_script(name).sha1.encode())

    def finish(self) -> Any:
        """Wait for the reply of the call in flight; raises `RedisError`, after which `begin` is possible again."""
        try:
            return self._read()
        except NoScriptError:
            self._send(b"EVAL", load_script(self._call.name).text)
            return self._read()
        finally:
            self._call = _NO_CALL  # which holds the strings

    def call(self, *call: Any) -> Any:
        self.begin(*call)
        return self.finish()

    def is_ready(self) -> bool:
        """Whether `finish` would return or raise at once."""
        try:
            return self.is_busy and bool(self._connection.can_read(0))
        except RedisError:
            return True

    def close(self) -> None:
        self.is_busy = False
        super().close()

    def _send(self, command: bytes, script: bytes) -> None:
        _, keys, args, contents = self._call
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
        """Send all pieces in one system call if possible: each call would wake the server for a part of a string."""
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
            for _ in self._call.contents:
                with suppress(ResponseError):  # not stored, at maxmemory: the script also fails, or finds nothing
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
    """Encode a command whose last argument comes in pieces: small ones joined, large ones as they are."""
    parts = [b"*%d\r\n" % (len(args) + 1)]
    for arg in args:
        value = arg if isinstance(arg, bytes) else str(arg).encode()
        parts += (b"$%d\r\n" % len(value), value, b"\r\n")
    size = sum(piece.nbytes for piece in last)
    parts.append(b"$%d\r\n" % size)
    if size <= _JOIN_BYTES:
        return [b"".join([*parts, *last, b"\r\n"])]
    return [b"".join(parts), *last, b"\r\n"]
