"""ReplayEngine: the parts of a replay, and the turn of its thread; `Replay` says what users see of it.

A turn takes in what the queues have (`_insert`), lets old chunks go (`_evict`), renews the leases and the limiter's
credit, draws (`_sample`), gathers (from this process or from Redis, see `observations`) and aggregates
(`aggregate_batch`) ahead.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.format.codec import Chunk, Contract
from surreal.distributed.experience.reading.sharded_pointer_queue import ShardedPointerQueue
from surreal.distributed.experience.shards import ReplayShards
from surreal.errors import ContractError
from surreal.replay.engine.fetcher import ExpFetcherQueue
from surreal.replay.engine.sampling import BatchSampler, Drawn
from surreal.replay.store.compressed_rows import CompressedRows
from surreal.replay.store.observations import MODES, Mode, Observations, Place, choose, rows_expected
from surreal.replay.store.remote_rows import RemoteRows
from surreal.replay.store.storage import Rows, StoredChunk, TransitionStore
from surreal.replay.stream.ages import Ages
from surreal.replay.stream.keeper import StreamKeeper
from surreal.replay.stream.limiter import SamplesPerInsert
from surreal.replay.stream.live_chunks import LiveChunks
from surreal.types import Batch
from surreal.utils.threads import Supervisor

_CHUNKS_PER_STEP = 8
_BATCHES_PER_STEP = 8


class ReplayEngine(ABC):
    """Base of `Replay`, whose arguments these are."""

    #: Mode of the streams that this replay owns: "window" lets go what is oldest, "consume" what was used.
    stream_mode = "window"
    #: Transitions that the limiter counts for each row of a batch.
    steps_per_sample = 1

    @classmethod
    def count_steps_per_sample(cls, **_: Any) -> int:
        """`steps_per_sample` of a replay that gets these arguments, for checks before there is one."""
        return cls.steps_per_sample

    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        batch_size: int = 64,
        capacity: int = 100_000,
        max_bytes: int | None = None,
        max_age_s: float | None = None,
        start_size: int = 1000,
        gamma: float = 0.99,
        n_step: int = 1,
        samples_per_insert: float | None = None,
        samples_per_insert_tolerance: float | None = None,
        prefetch: int | None = None,
        observations: Mode = "auto",
        mirror_max_bytes: int = 4 << 30,
        is_owner: bool = True,
        pin_memory: bool = False,
        lease_s: float = 5.0,
        seed: int | None = None,
        shards: Sequence[int] | None = None,
    ) -> None:
        if batch_size < 1 or (prefetch is not None and prefetch < 1) or n_step < 1:
            raise ValueError("batch_size, prefetch and n_step must be >= 1")
        if not 1 <= start_size <= capacity:
            raise ValueError(f"start_size is {start_size}; it must be 1 .. capacity = {capacity}")
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"gamma is {gamma}; it must be 0 .. 1")
        if observations not in MODES:
            raise ValueError(f"observations is {observations!r}; it must be one of {', '.join(MODES)}")
        self.shards = ReplayShards.of(client)
        self.batch_size = batch_size
        self.capacity = capacity
        self.start_size = start_size
        self.gamma = gamma
        self.n_step = n_step
        self.rng = np.random.default_rng(seed)
        self.observations = observations
        self.mirror_max_bytes = mirror_max_bytes
        self.pin_memory = pin_memory
        self.limiter = SamplesPerInsert.for_batches(
            samples_per_insert,
            start_size=start_size,
            tolerance=samples_per_insert_tolerance,
            batch_size=batch_size * self.steps_per_sample,
        )
        self.store: TransitionStore | None = None
        self._chunks = LiveChunks()
        self._wake = threading.Event()
        self._supervisor = Supervisor("replay")
        stop = self._supervisor.stop_event
        followed = sorted(set(range(len(self.shards)) if shards is None else shards))
        if not followed:
            raise ValueError("shards is empty; name at least one, or leave it out")
        self.streams = self.shards.streams(followed)
        self._ages = Ages(self.streams, max_age_s)
        self.owner = StreamKeeper(
            self.streams,
            self.limiter,
            is_owner=is_owner,
            max_bytes=max_bytes,
            lease_s=lease_s,
            stop=stop,
            mode=self.stream_mode,
            others=self.shards.streams([shard for shard in range(len(self.shards)) if shard not in followed]),
        )
        self.pointer_queue = ShardedPointerQueue(
            self.streams, stop=stop, needs_blocks=self._needs_blocks, on_ready=self._wake.set
        )
        self._sampler: BatchSampler | None = None
        self._place: tuple[int, Place] | None = None  # contract id, and where its observations are
        self.fetcher_queue = ExpFetcherQueue(prefetch)
        self._evicted_chunks = 0
        self._inserted_steps = 0
        self._newest_version = -1
        self._has_begun = False

    # -- what the engine drives; see `Replay` ------------------------------------------------------------------------

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _insert(self, table: Chunk) -> range: ...

    @abstractmethod
    def _sample(self, batch_size: int) -> Drawn: ...

    @abstractmethod
    def _evict(self) -> int: ...

    @abstractmethod
    def start_sample_condition(self) -> bool:
        """Whether batches may be drawn."""

    @abstractmethod
    def aggregate_batch(self, rows: Rows) -> Batch:
        """Make tensors of gathered rows."""

    # -- the turn ----------------------------------------------------------------------------------------------------

    def step(self, timeout_s: float = 0.05) -> bool:
        """One turn of the replay's thread: take in, let go, renew, draw; waits a moment if there is nothing to do.

        Returns:
            Whether something was done.
        """
        self.owner.claim()
        has_worked, is_waiting = self._take_in(), False
        if not self._has_begun and self.pointer_queue.has_caught_up.is_set() and not len(self.pointer_queue):
            self._has_begun = True
            if len(self) < self.start_size or not self.owner.is_owner:
                is_complete = self.owner.is_owner and not self.pointer_queue.lost_chunks
                self.owner.rebase(None if is_complete else len(self))
        elif self._has_begun and len(self) >= self.start_size and not self.start_sample_condition():
            # Something else is awaited, as lanes long enough for a sequence: the band begins with it, or the agents
            # would have no credit left to bring it.
            self.owner.rebase(self.start_size - 1)
            is_waiting = self.limiter is not None
        is_limited = False
        for _ in range(_BATCHES_PER_STEP):
            has_drawn, is_limited = self._draw_ahead()
            has_worked |= has_drawn
            if not has_drawn:
                break
        self.fetcher_queue.hand_over()
        self.owner.renew(is_waiting=is_waiting or is_limited)
        if not has_worked:
            self._wake.wait(min(timeout_s, 0.005) if is_limited else timeout_s)
            self._wake.clear()
        return has_worked

    # -- inside the turn ---------------------------------------------------------------------------------------------

    def _take_in(self) -> bool:
        taken = 0
        while taken < _CHUNKS_PER_STEP:
            chunk = self.pointer_queue.dequeue(self._may_take_in)
            if chunk is None:
                break
            self._open(chunk)
            numbers = self._insert(chunk)
            if self.store is not None:
                stored = StoredChunk(
                    shard=chunk.shard,
                    entry_id=chunk.entry_id,
                    chunk_id=chunk.chunk_id,
                    epoch=chunk.epoch,
                    steps=len(numbers),
                    stored_bytes=chunk.stored_bytes,
                    end=numbers.stop,
                    row_end=self.store.rows.head,
                )
                self._chunks.append(stored)
                self.owner.make_room_for(stored)
            self._inserted_steps += chunk.own_steps
            self._newest_version = int(chunk.columns["version"][-1])
            taken += 1
        if taken or (self._chunks and self._ages.is_old(self._chunks[0])):
            self._let_go()
        return taken > 0

    def _may_take_in(self, shard: int) -> bool:
        """Whether chunks of a shard can be inserted now."""
        return True

    def _open(self, chunk: Chunk) -> None:
        contract = chunk.contract
        if contract is None or (self.store is not None and self.store.contract is contract):
            return
        if self.store is not None:
            if self.store.contract.id != contract.id:
                raise ContractError(f"the stream of run {self.shards.run} changed its contract while it was read")
            return
        if self.n_step > contract.lookahead + 1:
            raise ContractError(
                f"n_step is {self.n_step}, but the stream of run {self.shards.run} has a lookahead of "
                f"{contract.lookahead}; send with lookahead >= {self.n_step - 1}"
            )
        rows: Observations | None = None
        place = self._choose_place(contract)
        if place == "remote":
            rows = RemoteRows(contract, self.streams, self._supervisor.stop_event)
        elif place == "compressed":
            rows = CompressedRows(contract, rows_expected(self.capacity))
        self.store = self._make_store(contract, rows)
        self._sampler = BatchSampler(self.store, self.batch_size, sample=self._sample, after_loss=self._after_loss)

    def _make_store(self, contract: Contract, observations: Observations | None) -> TransitionStore:
        return TransitionStore(
            contract, capacity=self.capacity, n_step=self.n_step, gamma=self.gamma, observations=observations
        )

    def _needs_blocks(self, contract: Contract) -> bool:
        return self._choose_place(contract) != "remote"

    def _choose_place(self, contract: Contract) -> Place:
        """Where the observations of a contract are; asked by both threads, and decided by the first."""
        if self._place is None or self._place[0] != contract.id:
            place = choose(self.observations, contract, capacity=self.capacity, mirror_max_bytes=self.mirror_max_bytes)
            self._place = contract.id, place
        return self._place[1]

    def _let_go(self) -> None:
        for _ in range(self._evict()):
            chunk = self._chunks.popleft()
            if self.store is not None:
                self.store.evict(chunk)
            self.owner.evict(chunk)
            self._evicted_chunks += 1

    def _after_loss(self) -> bool:
        """Observations were gone: let go what has lost them; returns whether batches may still be drawn."""
        self._let_go()
        if len(self) < self.start_size:
            # The agents may have no credit left to fill the replay again; count from here.
            self.owner.rebase(len(self))
        return self.start_sample_condition()

    def _draw_ahead(self) -> tuple[bool, bool]:
        """Make a batch if there is room for it; where observations are remote, ask for one and finish the one before.

        Returns:
            Whether something was done, and whether the limiter forbade to draw.
        """
        if self._sampler is None:
            return False, False
        asked, has_asked, is_limited = self._sampler.num_asked, False, False
        if self.fetcher_queue.room > asked and self.start_sample_condition():
            is_limited = not self.owner.may_sample((asked + 1) * self.batch_size)
            has_asked = not is_limited
        if has_asked and self._sampler.asks_ahead:
            self._sampler.ask()
            if asked < self._sampler.asks_ahead:
                return True, False
        if not asked and not has_asked:
            return False, is_limited
        batch = self._next_batch()
        if batch is None:
            return False, is_limited  # as while no shard answers: that lasts
        self.fetcher_queue.put(batch)
        return True, is_limited

    def _next_batch(self) -> Batch | None:
        """The oldest batch that was asked for, or a new one; None if its observations are gone."""
        if self._sampler is None:
            raise ValueError("nothing was inserted yet")
        if not self._sampler.num_asked:
            self._sampler.ask()
        rows = self._sampler.collect()
        if rows is None:
            return None
        self.owner.count_samples(len(rows.reward))
        return self.aggregate_batch(rows)
