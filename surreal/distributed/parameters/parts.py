"""Bytes of parameters in Redis: uploaded in parts, switched by the publish script, read by listeners.

A small blob goes as an argument of the script, into the policy's hash. Larger ones go in parts of 2 MB: for values of
more than 8 MB, jemalloc takes new memory from the kernel each time, which costs Redis twice as much as the copy. A
part's key has the id of its publication.
Parts are uploaded with an expiry, which the script removes when it publishes, so a broadcaster that dies in between
leaves nothing behind. The parts of a publication are removed at the next but one, so a listener that is reading them
has one more interval to finish.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from redis.exceptions import OutOfMemoryError

from surreal.base.errors import CodecError, RedisUnavailableError
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
#: Size of a part. With its header, it just fits into one of jemalloc's size classes.
PART_BYTES = (2 << 20) - 4096
#: Parts that an upload of several round trips sends in one of them, bytes.
_UPLOAD_BYTES = 64 << 20
#: Parts that are requested before the first has arrived.
_MOST_AHEAD = 2
#: Larger blobs go in parts: as an argument, they would be copied into Lua and back, and block the server meanwhile.
#: Smaller ones reach a listener in one round trip instead of two.
INLINE_BYTES = 128 << 10


def split(blob: bytes | bytearray, part_bytes: int) -> list[memoryview]:
    """Cut `blob` into parts of at most `part_bytes` (>= 1), or more if there would be too many, without copying."""
    view = memoryview(blob)
    part_bytes = max(part_bytes, -(-len(view) // MAX_PARTS))
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
    number = max(1, _UPLOAD_BYTES // len(parts[0]))
    for start in range(0, len(parts), number):

        def upload(start: int = start) -> None:
            pipeline = client.redis.pipeline(transaction=False)
            for name in names[:start]:
                pipeline.pexpire(name, ttl_ms)
            for name, part in zip(names[start : start + number], parts[start : start + number], strict=True):
                pipeline.set(name, part, px=ttl_ms)
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


def fetch_parts(
    connection: DirectConnection, names: Sequence[str], memory: Memory
) -> bytes | bytearray | memoryview | None:
    """Read parts (at least one) into one block of memory; None if one is gone, because a newer publication replaced it.

    Raises:
        CodecError: together they are larger than the memory may be.
    """
    block, size = memoryview(b""), 0

    def place(part_bytes: int) -> memoryview:
        nonlocal block, size
        if not size:  # the first part is as large as any
            block = memoryview(memory(min(part_bytes * len(names), memory.max_bytes)))
        if size + part_bytes > len(block):
            raise CodecError(f"{size + part_bytes} bytes are too many; there is room for {len(block)}")
        size += part_bytes
        return block[size - part_bytes : size]

    *first, last = parts = connection.ask(*(("GET", name) for name in names), into=place, most_ahead=_MOST_AHEAD)
    if None in parts:
        return None
    if not size or any(isinstance(part, bytes) for part in first):  # small ones are not in the block
        return b"".join(parts)
    if isinstance(last, bytes):
        place(len(last))[:] = last
    return block[:size]
