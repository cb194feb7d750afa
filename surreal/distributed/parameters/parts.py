"""Bytes of parameters in Redis: uploaded in parts, switched by the publish script, read by listeners.

A small blob goes as an argument of the script, into the policy's hash. A part's key has the id of its publication.
Parts are uploaded with an expiry, which the script removes when it publishes, so a broadcaster that dies in between
leaves nothing behind. The parts of a publication are removed at the next but one, so a listener that is reading them
has one more interval to finish.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

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
MAX_PARTS = 4096
#: Larger blobs go in parts: as an argument, they would be copied into Lua and back, and block the server meanwhile.
#: Smaller ones reach a listener in one round trip instead of two.
INLINE_BYTES = 128 << 10


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
