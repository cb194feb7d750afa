"""Intake: the half of a turn that takes chunks in and lets old ones go.

The replay decides both (`_insert`, `_evict`). With the first chunk the stream's contract is known, and with it where
observations are (`store.place`) and what makes batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from surreal.base.errors import ContractError
from surreal.base.types import Batch, TrajectoryBatch
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.pointer_queue import ShardedPointerQueue
from surreal.distributed.experience.stream import Stream
from surreal.replay.engine.batches import BatchMaker
from surreal.replay.engine.hooks import Hooks
from surreal.replay.store.place import ObservationPlace
from surreal.replay.store.storage import StoredChunk
from surreal.replay.stream.ages import Ages
from surreal.replay.stream.keeper import StreamKeeper
from surreal.replay.stream.live_chunks import LiveChunks

B = TypeVar("B", bound=Batch | TrajectoryBatch)

_CHUNKS_PER_STEP = 8


class Intake(Generic[B]):
    """Used by the replay's thread, but for the queue, which threads of its own fill.

    Args:
        hooks: the replay.
        streams: whose chunks are taken in.
        owner: of the streams, which removes chunks from Redis.
        place: decides where observations are.
        max_age_s: s since a chunk was stored, after which it is old; None: never.
        stop: ends waits.
        on_ready: called when chunks are ready, on the threads that read them.

    Attributes:
        chunks: that are alive, oldest first.
        batches: what makes batches; None until the first chunk came.
    """

    def __init__(
        self,
        hooks: Hooks[B],
        streams: Sequence[Stream],
        owner: StreamKeeper,
        *,
        place: ObservationPlace,
        max_age_s: float | None,
        stop: threading.Event,
        on_ready: Callable[[], object],
    ) -> None:
        self._hooks = hooks
        self._streams = streams
        self._owner = owner
        self._place = place
        self._stop = stop
        self.ages = Ages(streams, max_age_s)
        self.pointer_queue = ShardedPointerQueue(
            streams,
            stop=stop,
            needs_blocks=place.needs_blocks,
            on_ready=on_ready,
            may_read=owner.owns if owner.consumes else lambda _: True,
        )
        self.chunks = LiveChunks()
        self.batches: BatchMaker[Any, B] | None = None
        self._evicted_chunks = 0
        self._inserted_steps = 0
        self._newest_version = -1

    def take_in(self) -> bool:
        """Take in what the queues have; returns whether there was anything."""
        taken = 0
        while taken < _CHUNKS_PER_STEP:
            chunk = self.pointer_queue.dequeue(self._hooks._may_take_in)
            if chunk is None:
                break
            self._open(chunk)
            begin = self._head
            numbers = self._hooks._insert(chunk)
            if numbers is None:  # what it put into the built-in store, if anything
                numbers = range(begin, self._head)
            if self.batches is not None:
                stored = StoredChunk(
                    shard=chunk.shard,
                    entry_id=chunk.entry_id,
                    chunk_id=chunk.chunk_id,
                    epoch=chunk.epoch,
                    steps=len(numbers),
                    stored_bytes=chunk.stored_bytes,
                    end=numbers.stop,
                    row_end=self.batches.store.observations.head,
                )
                self.chunks.append(stored)
                self._owner.make_room_for(stored)
            self._inserted_steps += chunk.own_steps
            self._newest_version = int(chunk.columns["version"][-1])
            taken += 1
        if taken or (self.chunks and self.ages.is_old(self.chunks[0])):
            self.let_go()
        return taken > 0

    @property
    def _head(self) -> int:
        """Sequence number of the next transition."""
        return self.batches.store.transitions.head if self.batches is not None else 0

    def let_go(self) -> None:
        """Let go as many of the oldest chunks as the replay says."""
        for _ in range(self._hooks._evict()):
            chunk = self.chunks.popleft()
            if self.batches is not None:
                self.batches.store.evict(chunk)
            self.remove(chunk)

    def remove(self, chunk: StoredChunk) -> None:
        """Have a chunk removed from Redis."""
        self._owner.evict(chunk)
        self._evicted_chunks += 1

    def count_superfluous(self, *, capacity: int, start_size: int) -> int:
        """How many of the oldest chunks are over the capacity or the byte bound, too old, or gone.

        Raises:
            ValueError: the byte bound cannot hold `start_size` transitions.
        """
        store = self.batches.store if self.batches is not None else None
        return self.chunks.count_superfluous(
            len(store) if store is not None else 0,
            capacity=capacity,
            start_size=start_size,
            is_old=self.ages.is_old,
            gone_until=store.observations.gone_until if store is not None else 0,
            is_over=self._owner.is_over,
        )

    def metrics(self) -> dict[str, float]:
        """What went through since the start."""
        return {
            "replay/inserted_steps_total": self._inserted_steps,
            "replay/evicted_chunks_total": self._evicted_chunks,
            "replay/refused_chunks_total": self.pointer_queue.refused_chunks,
            "replay/gone_chunks_total": self.pointer_queue.gone_chunks,
            "replay/newest_version": self._newest_version,
        }

    def _open(self, chunk: Chunk) -> None:
        contract, run = chunk.contract, self._streams[0].client.run
        known = self.batches.store.contract if self.batches is not None else None
        if contract is None or known is contract:
            return
        if known is not None:
            if known.id != contract.id:
                raise ContractError(f"the stream of run {run} changed its contract while it was read")
            return
        n_step = self._hooks.n_step
        if n_step > contract.lookahead + 1:
            raise ContractError(
                f"n_step is {n_step}, but the stream of run {run} has a lookahead of {contract.lookahead}; "
                f"send with lookahead >= {n_step - 1}"
            )
        self.batches = self._hooks._make_batches(contract, self._place.open(contract, self._streams, self._stop))
