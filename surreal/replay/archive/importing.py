"""`surreal replay import`: from an archive into a replay's streams.

The import appends through the append script under its own senders, derived from the archive's id, with the sequence
numbers the chunks had. An import that is repeated after an interruption continues where it stopped, and nothing is
stored twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from surreal.base.errors import ConfigError, ContractError, ReplayFullError, StoppedError, SurrealError
from surreal.base.system.process import stream_bound_bytes
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.contract import describe_difference
from surreal.distributed.connection.retry import number_of
from surreal.distributed.experience.codec import EncodedChunk, encode
from surreal.distributed.experience.data_contract import Contract
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import AppendOptions, Stream
from surreal.replay.archive.columns import ArchivedChunk
from surreal.replay.archive.files import ReplayArchive
from surreal.replay.archive.manifest import Manifest

T = TypeVar("T")

_DEFAULT_BOUND_BYTES = 2 << 30
_LOOK_AHEAD = 16  # chunks, which stay in memory
_MIN_WAIT_S, _MAX_WAIT_S = 0.01, 0.2


class ImportResult(NamedTuple):
    """The outcome of an import."""

    manifest: Manifest
    chunks: int  #: appended now
    steps: int  #: own steps of these
    known_chunks: int  #: were there already, from an earlier import of the same archive


def import_replay(
    where: RedisClient | ReplayShards, path: Path, *, timeout_s: float = 60.0, stop: threading.Event | None = None
) -> ImportResult:
    """Append an archive's chunks to a replay, each once, in their order; all of it is verified before the first.

    Imported steps count as env steps of the run. The samples-per-insert limiter is not asked. Senders of the archive
    are spread over the shards.

    Args:
        where: the run's replay.
        path: the archive's folder.
        timeout_s: how long to wait for room in a full stream, whose owner evicts, s.
        stop: ends it with `StoppedError`; a later import continues from there.

    Raises:
        ConfigError: the run has another number of shards.
        CodecError: the archive is cut off, was changed, or is none.
        ContractError: the stream holds experience of another kind.
        ReplayFullError: the stream has no room.
        SurrealError: Redis was emptied meanwhile.
    """
    archive = ReplayArchive(path)
    archive.verify()
    for _ in archive.chunks():
        pass  # all rows are checked before the first is stored
    shards = ReplayShards.of(where)
    stop = stop or threading.Event()
    importers = [_Importer(stream, archive, len(shards), timeout_s, stop) for stream in shards.streams()]
    foreign = importers[0].retry(shards.foreign_streams, "look for other streams of the run")
    if foreign:
        streams = f"{len(foreign)} streams that are none of {len(shards)} shards ({', '.join(foreign[:2])})"
        advice = "import it with as many shards as the run has, or into another run"
        raise ConfigError(f"run {shards.run} has experience in {streams}; {advice}", key="--shards")
    for importer in importers:
        importer.retry(importer.prepare, "look at the stream")
    steps = chunks = known = 0
    coming = archive.chunks()
    while group := list(islice(coming, _LOOK_AHEAD)):
        for shard, importer in enumerate(importers):
            ours = [chunk for chunk in group if chunk.sender % len(importers) == shard]  # a sender's stay together
            missing = importer.retry(partial(importer.missing, ours), "find known chunks") if ours else []
            known += len(ours) - len(missing)
            for chunk in missing:
                encoded = encode(archive.contract, chunk.segments, chunk.columns, chunk.leaves)
                if importer.append(chunk, encoded):
                    steps, chunks = steps + encoded.own_steps, chunks + 1
                else:
                    known += 1
    for importer in importers:
        importer.retry(importer.remember, "note the import")
    return ImportResult(archive.manifest, chunks, steps, known)


class _Importer:
    """One shard's part of the chunks of an archive, on their way into its stream."""

    def __init__(
        self, stream: Stream, archive: ReplayArchive, num_shards: int, timeout_s: float, stop: threading.Event
    ) -> None:
        self._stream, self._archive, self._num_shards = stream, archive, num_shards
        self._timeout_s, self._stop = timeout_s, stop
        # The archive's id and the sender's place make an incarnation that no sender has, the same in every attempt.
        self._senders = [f"{archive.manifest.id[:16]}{place:04x}" for place in range(len(archive.manifest.senders))]
        self._run = stream.client.run
        self._last: list[int] = []
        self._bound_bytes = 0
        self._epoch = ""
        self._sends_contract = False

    def retry(self, operation: Callable[[], T], what: str) -> T:
        return self._stream.client.retry(operation, what=what, stop=self._stop)

    def prepare(self) -> None:
        """Read the stream's state, and refuse an import that is certain to fail."""
        stream, keys, redis = self._stream, self._stream.keys, self._stream.client.redis
        stored = stream.contract()
        if stored is not None and redis.xlen(keys.stream):
            self._compare(stored)
        self._epoch = stream.counts().epoch
        values: Any = redis.mget([keys.seq(sender) for sender in self._senders])
        self._last = [number_of(value) for value in values]
        memory = stream.maxmemory_bytes()
        self._bound_bytes = stream_bound_bytes(memory) or _DEFAULT_BOUND_BYTES
        if any(self._last) or redis.exists(keys.lease):
            return  # part of it is there already, or an owner makes room
        counts: Any = redis.hmget(keys.meta, "max_bytes", "live_bytes")
        bound, live = counts
        room = number_of(bound or self._bound_bytes) - number_of(live)
        needed = self._archive.manifest.stored_bytes // self._num_shards
        if needed > room:
            raise ReplayFullError(
                f"the archive takes about {needed} bytes in Redis, and the replay of run "
                f"{self._run} has room for {max(room, 0)}: raise Redis' maxmemory, or start a learner, which evicts"
            )

    def missing(self, group: list[ArchivedChunk]) -> list[ArchivedChunk]:
        """Find the chunks that no earlier import stored. Blocks stay, but sequence numbers expire after an hour."""
        pipeline = self._stream.client.redis.pipeline(transaction=False)
        for chunk in group:
            pipeline.exists(self._stream.keys.block(f"{self._senders[chunk.sender]}-{chunk.sequence}"))
        stored = pipeline.execute()
        return [
            chunk
            for chunk, is_there in zip(group, stored, strict=True)
            if not is_there and chunk.sequence > self._last[chunk.sender]
        ]

    def append(self, chunk: ArchivedChunk, encoded: EncodedChunk) -> bool:
        """Store one chunk, waiting for room; return whether it is new. Another import may have stored it meanwhile."""
        deadline_s, pause_s = time.monotonic() + self._timeout_s, _MIN_WAIT_S
        while True:
            if self._stop.is_set():
                raise StoppedError(f"the import stopped before chunk {chunk.number}; repeat it to continue")
            options = AppendOptions(
                sender=self._senders[chunk.sender],
                sequence=chunk.sequence,
                contract=self._archive.contract,
                sends_contract=self._sends_contract,
                is_limited=False,
                default_bound_bytes=self._bound_bytes,
            )
            answer = self.retry(partial(self._stream.append, encoded, options), "import a chunk")
            if answer.status == "mismatch":
                self._compare(answer.detail)
            elif answer.status == "contract":
                self._sends_contract = True
            elif answer.status in ("ok", "duplicate"):
                break
            else:
                if time.monotonic() > deadline_s:
                    place = f"at chunk {chunk.number} of {self._archive.manifest.chunks}"
                    problem = f"the replay of run {self._run} was full for {self._timeout_s:.0f} s {place}"
                    advice = "raise Redis' maxmemory, or start a learner, which evicts"
                    text = f"{problem}: {advice}; then repeat the import to continue"
                    raise ReplayFullError(text, waited_s=self._timeout_s)
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, _MAX_WAIT_S)
        self._sends_contract = False
        if self._epoch not in ("", answer.epoch):
            # By its sequence number, the chunk just stored would hide those before it.
            self._stream.client.redis.unlink(*(self._stream.keys.seq(sender) for sender in self._senders))
            raise SurrealError("Redis was emptied during the import; repeat it")
        self._epoch = answer.epoch
        return answer.status == "ok"

    def remember(self) -> None:
        """Keep the sequence numbers of a whole import for as long as the run."""
        for sender in self._senders:
            self._stream.client.redis.persist(self._stream.keys.seq(sender))

    def _compare(self, stored: bytes) -> None:
        ours = self._archive.contract
        theirs = Contract.from_bytes(stored)
        if theirs.id != ours.id:
            diff = describe_difference(theirs.to_json(), ours.to_json())
            problem = f"the replay of run {self._run} holds experience of another kind than {self._archive.path}"
            raise ContractError(f"{problem} ({'; '.join(diff[:3])}); import it into another run", diff=diff)
