"""Bytes of parameters in Redis: uploaded in parts, switched by the publish script, read by listeners.

A small blob goes as an argument of the script, into the policy's hash. A part's key has the id of its publication.
Parts are uploaded with an expiry, which the script removes when it publishes, so a broadcaster that dies in between
leaves nothing behind. The parts of a publication are removed at the next but one, so a listener that is reading them
has one more interval to finish.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from redis.exceptions import OutOfMemoryError

from surreal.base.errors import RedisUnavailableError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.connection.retry import pause
from surreal.distributed.connection.wire import DirectConnection, Memory

#: Lifetime of uploaded parts before their publication, s; renewed during the upload.
UPLOAD_TTL_S = 120.0
#: How long an upload waits for room in a full Redis, s.
ROOM_TIMEOUT_S = 30.0
_ROOM_POLL_S = 0.5
STOPPED = "stopped while publishing parameters"
_UPLOAD_ATTEMPTS = 3
MAX_PARTS = 4096
#: Larger blobs go in parts: as an argument, they would be copied into Lua and back, and block the server meanwhile.
#: Smaller ones reach a listener in one round trip instead of two.
INLINE_BYTES = 128 << 10


class Upload:
    """The bytes of one publication on their way to Redis, in one part just before the script, or in several.

    Args:
        client: client of the parameter server.
        keys: the policy's keys.
        publication: id of the publication.
        blob: the bytes.
        part_bytes: size of the largest part.
        is_alone: whether no other process publishes another part of the same version; otherwise, parts are needed.
        stop: ends a wait with `StoppedError`.
    """

    def __init__(
        self,
        client: RedisClient,
        keys: PolicyKeys,
        publication: str,
        blob: bytes,
        part_bytes: int,
        is_alone: bool,
        stop: threading.Event | None,
    ) -> None:
        self.inline = b""  #: argument of the script
        self._parts = split(blob, part_bytes)
        self.names = part_names(keys, publication, len(self._parts))  #: keys of the parts that the script publishes
        self._client = client
        self._blob = blob
        self._is_alone = is_alone
        self._stop = stop
        self._is_there = False
        self._attempts = 0

    def bring(self) -> Mapping[str, Sequence[memoryview]]:
        """Upload missing parts; return the strings that `ScriptChannel` must store just before the script.

        Raises:
            RedisUnavailableError, StoppedError: as `upload_parts`.
        """
        if self._is_there:
            return {}
        self._is_there = True
        self._attempts += 1
        if len(self._parts) == 1 and self._attempts == 1:
            return {self.names[0]: self._parts}
        upload_parts(self._client, self.names, self._parts, self._stop)
        return {}

    def bring_again(self) -> None:
        """Upload again with the next `bring`, because the script did not find all parts.

        Raises:
            RedisUnavailableError: too many attempts.
        """
        if len(self._parts) == 1 and self._is_alone:
            # Redis is full. In the hash itself, they replace the last parameters and need no more room than those.
            self._parts, self.names, self.inline = [], [], self._blob
        elif self._attempts < _UPLOAD_ATTEMPTS:
            self._is_there = False
        else:
            count = len(self._parts)
            message = f"{count} parts of parameters expired in Redis before the last was there; is it too slow?"
            raise RedisUnavailableError(message, address=self._client.address)


def split(blob: bytes, part_bytes: int) -> list[memoryview]:
    """Cut `blob` into parts of at most `part_bytes` (>= 1), without copying."""
    view = memoryview(blob)
    return [view[start : start + part_bytes] for start in range(0, len(blob), part_bytes)]


def part_names(keys: PolicyKeys, publication: str, count: int) -> list[str]:
    """Return the keys of a publication's parts, in order."""
    return [keys.part(publication, i) for i in range(count)]


def upload_parts(
    client: RedisClient, names: Sequence[str], parts: Sequence[memoryview], stop: threading.Event | None = None
) -> None:
    """Store parts that expire unless they are published.

    Raises:
        RedisUnavailableError: Redis did not answer in time, or had no room for `ROOM_TIMEOUT_S`.
        StoppedError: `stop` was set while waiting.
    """
    ttl_ms = int(1000 * UPLOAD_TTL_S)
    deadline = time.monotonic() + ROOM_TIMEOUT_S
    for i in range(len(parts)):

        def upload(i: int = i) -> None:
            pipeline = client.redis.pipeline(transaction=False)
            for name in names[:i]:
                pipeline.pexpire(name, ttl_ms)
            pipeline.set(names[i], parts[i], px=ttl_ms)
            pipeline.execute()

        while True:
            try:
                client.retry(upload, what="upload parameters", stop=stop)
                break
            except OutOfMemoryError as error:
                if time.monotonic() > deadline:
                    size = sum(map(len, parts))
                    message = f"Redis at {client.address} is full: no room for another {size} bytes of parameters"
                    message += "; raise its maxmemory, or lower replay.max_bytes"
                    raise RedisUnavailableError(message, address=client.address) from error
            pause(stop, _ROOM_POLL_S, STOPPED)


def fetch_parts(connection: DirectConnection, names: Sequence[str], max_bytes: int) -> bytes | bytearray | None:
    """Read parts and join them; None if one is gone, because a newer publication has replaced it.

    Raises:
        CodecError: together they are larger than `max_bytes`.
    """
    parts: list[bytes | bytearray] = []
    for name in names:
        (part,) = connection.ask(("GET", name), into=Memory(max_bytes - sum(map(len, parts))))
        if part is None:
            return None
        parts.append(part)
    return parts[0] if len(parts) == 1 else bytearray().join(parts)
