"""`surreal replay export`: from streams into an archive. It only reads, while the run may continue and evict."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import surreal
from surreal.base.errors import StoppedError, SurrealError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import number_of, parse_entry_id
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.data_contract import Contract
from surreal.distributed.experience.pointer_queue import PointerQueue
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import Stream
from surreal.replay.archive.files import FILE_BYTES, ArchiveWriter
from surreal.replay.archive.manifest import Manifest


def export_replay(
    where: RedisClient | ReplayShards,
    path: Path,
    *,
    file_format: str = "arrow",
    file_bytes: int = FILE_BYTES,
    stop: threading.Event | None = None,
) -> Manifest:
    """Write the current contents of a replay into a new archive, shard by shard; Redis is only read.

    Args:
        where: the run's replay.
        path: the archive's folder; it must not exist.
        file_format: arrow or parquet.
        file_bytes: uncompressed bytes after which the next file begins, >= 1.
        stop: ends it; nothing is left at the path then.

    Raises:
        ConfigError: the path cannot be written.
        SurrealError: the replay is empty, or Redis was emptied meanwhile.
    """
    shards = ReplayShards.of(where)
    extents = [
        (stream, stream.client.retry(partial(_extent, stream), what="look at the stream", stop=stop))
        for stream in shards.streams()
    ]
    extents = [(stream, extent) for stream, extent in extents if extent.length]
    if not extents:
        raise SurrealError(f"the replay of run {shards.run} at {shards.address} is empty: there is nothing to export")
    first = extents[0][0]
    text = first.client.retry(first.contract, what="read the stream's contract", stop=stop)
    if text is None:
        raise SurrealError(f"Redis was emptied while the replay of run {shards.run} was exported; repeat it")
    chunks = refused = 0
    with ArchiveWriter(path, Contract.from_bytes(text), file_format=file_format, file_bytes=file_bytes) as writer:
        for stream, extent in extents:
            queue = PointerQueue(stream, stop=stop)
            for chunk in _follow(queue, extent.last_id, stop):
                if chunk.contract is None or chunk.contract.id != writer.contract.id:
                    raise SurrealError(f"the stream of run {shards.run} changed its contract while it was exported")
                sender, _, sequence = chunk.chunk_id.rpartition("-")
                writer.add(chunk, sender=sender, sequence=int(sequence))
                chunks += 1
            refused += queue.refused_chunks
        if not chunks:
            raise SurrealError(f"all chunks of run {shards.run} were evicted before they were exported; try again")
        return writer.finish(
            run=shards.run,
            created=time.time(),
            surreal_version=surreal.__version__,
            evicted_chunks=max(0, sum(extent.length for _, extent in extents) - chunks - refused),
            refused_chunks=refused,
            global_step=sum(extent.steps for _, extent in extents),
        )


def _follow(queue: PointerQueue, last_id: bytes, stop: threading.Event | None) -> Iterator[Chunk]:
    """The chunks of a stream up to an entry."""
    end, epoch = parse_entry_id(last_id), ""
    while True:
        queue.enqueue_step()
        if epoch not in ("", queue.epoch):
            raise SurrealError("Redis was emptied during the export; repeat it")
        epoch = queue.epoch
        reached = queue.has_caught_up.is_set()
        while (chunk := queue.dequeue()) is not None:
            if parse_entry_id(chunk.entry_id) > end:
                return
            yield chunk
        if reached:
            return
        if stop is not None and stop.is_set():
            raise StoppedError("the export was stopped")


class _Extent(NamedTuple):
    length: int  #: entries of the stream
    last_id: bytes
    steps: int  #: env steps of the shard so far


def _extent(stream: Stream) -> _Extent:
    redis = stream.client.redis
    if not redis.exists(stream.keys.stream):
        return _Extent(0, b"0-0", 0)
    info: Any = redis.xinfo_stream(stream.keys.stream)
    steps: Any = redis.hget(stream.keys.meta, "steps")
    last = info["last-generated-id"]
    return _Extent(int(info["length"]), last if isinstance(last, bytes) else str(last).encode(), number_of(steps))
