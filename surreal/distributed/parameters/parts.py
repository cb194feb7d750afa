"""Parameters too large for one Redis value: uploaded in parts, switched by the publish script, read by listeners.

A part's key carries the id of its publication. Parts are uploaded with an expiry, which the script takes away when it
publishes, so a broadcaster that dies in between leaves nothing behind. The parts of a publication are removed at the
next but one, so that a listener which is reading them has one more interval to finish.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from redis.exceptions import OutOfMemoryError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import PolicyKeys
from surreal.errors import CodecError, RedisUnavailableError, StoppedError

#: How long uploaded parts wait for their publication, s; renewed while the upload goes on.
UPLOAD_TTL_S = 120.0
#: How long an upload waits for room in a full Redis, s.
ROOM_TIMEOUT_S = 30.0
_ROOM_POLL_S = 0.5
MAX_PARTS = 4096


def part_names(keys: PolicyKeys, publication: str, count: int) -> list[str]:
    """Keys of the parts of a publication, in order."""
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
            pause(stop, _ROOM_POLL_S)


def fetch_parts(client: RedisClient, names: Sequence[str], max_bytes: int) -> bytes | None:
    """Read parts and join them; None if one is gone, because a newer publication has replaced it.

    Raises:
        CodecError: together they are larger than `max_bytes`.
    """
    parts: list[bytes] = []
    size = 0
    for name in names:
        part = client.execute("GET", name)
        if part is None:
            return None
        size += len(part)
        if size > max_bytes:
            raise CodecError(f"parameters are more than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


def pause(stop: threading.Event | None, seconds: float) -> None:
    """Wait, or raise `StoppedError` when `stop` is set."""
    if stop is None:
        time.sleep(seconds)
    elif stop.wait(seconds):
        raise StoppedError("stopped while publishing parameters")
