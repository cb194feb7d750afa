"""Replay: the learner's view of the streams in Redis. Subclasses say what is kept and what is drawn.

These threads work for it once `start_threads()` was called:

    enqueue (one a shard)   PointerQueue: waits for Redis, downloads and decodes chunks
    replay                  step(): takes chunks in (`_insert`), lets old ones go (`_evict`), renews the lease and the
                            limiter's credit, draws (`_sample`), gathers (from this process or from Redis, see
                            `observations`) and aggregates (`aggregate_batch`) ahead

So the index has one owner and needs no lock: hooks run on the replay's thread, never two at a time. The learner's loop:

    replay.start_threads()
    for i, batch in replay.batch_iterator():
        learner.optimize(i, batch)
"""

from __future__ import annotations

import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.client import RedisClient
from surreal.distributed.codec import Chunk, Contract
from surreal.distributed.pointer_queues import PointerQueues
from surreal.distributed.shards import ReplayShards
from surreal.errors import ContractError
from surreal.replay.drawing import BatchDrawer
from surreal.replay.fetcher import ExpFetcherQueue, to_batch
from surreal.replay.keeper import StreamKeeper
from surreal.replay.limiter import SamplesPerInsert
from surreal.replay.living_chunks import LivingChunks
from surreal.replay.observations import MODES, Mode, Observations, choose
from surreal.replay.remote_rows import RemoteRows
from surreal.replay.storage import Rows, StoredChunk, TransitionStore
from surreal.specs import ObsSpec
from surreal.types import Batch, SampleInfo
from surreal.utils.threads import Supervisor

logger = logging.getLogger(__name__)

#: A thread that is busy in Python starves the training thread at CPython's default of 5 ms; at 0.2 ms prefetching
#: costs the learner a few per cent.
SWITCH_INTERVAL_S = 0.0002
_CHUNKS_PER_STEP = 8


class Replay(ABC):
    """Base of all replays: follows the run's shards, owns them (or not), and hands out batches.

    Args:
        client: the replay server; or the `ReplayShards`, if there are several.
        batch_size: transitions of a batch, >= 1.
        capacity: transitions kept; the oldest chunks go first, so up to one chunk fewer may be alive, and one more
            where fewer would be less than `start_size`.
        max_bytes: bytes kept in Redis; None: as much as Redis' memory limit lets us. Of a follower: bytes in Redis of
            what it keeps an index of; None: no bound.
        start_size: transitions that must be there before the first batch, 1 .. capacity.
        gamma: discount factor of one step, 0..1.
        n_step: steps summed in a transition's reward, 1 .. lookahead of the stream + 1.
        samples_per_insert: transitions drawn for each env step; None: no limiter. Agents whose senders are limited
            wait for it, and so does the learner.
        samples_per_insert_tolerance: half the width of the limiter's band, samples; default: what fits 4 batches.
        prefetch: batches gathered ahead, >= 1.
        observations: "mirrored" downloads them once into this process, "remote" fetches those of a batch from Redis
            when it is drawn, "auto" mirrors what fits into `mirror_max_bytes`.
        mirror_max_bytes: bytes of this process that "auto" takes for observations; more mirrors larger replays.
        is_owner: whether to own the stream: decide what is evicted, and grant the limiter's credit. A replay that only
            follows deletes nothing, and draws again where the owner evicted what it drew.
        pin_memory: make batches in page-locked memory, for a learner on a GPU; needs CUDA.
        lease_s: how long the stream stays ours after a sign of life, s.
        seed: of the sampling.
        shards: numbers of the shards to follow; None: all. Several learners can split them.

    Raises:
        ValueError: an argument is out of range, or the settings cannot work together.
    """

    #: Whether `update_priorities` does something.
    wants_priorities = False
    #: Mode of the stream that this replay owns: "window" lets go what is oldest, "consume" what was used.
    stream_mode = "window"
    #: Transitions that the limiter counts for each row of a batch.
    steps_per_sample = 1

    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        batch_size: int = 64,
        capacity: int = 100_000,
        max_bytes: int | None = None,
        start_size: int = 1000,
        gamma: float = 0.99,
        n_step: int = 1,
        samples_per_insert: float | None = None,
        samples_per_insert_tolerance: float | None = None,
        prefetch: int = 4,
        observations: Mode = "auto",
        mirror_max_bytes: int = 4 << 30,
        is_owner: bool = True,
        pin_memory: bool = False,
        lease_s: float = 5.0,
        seed: int | None = None,
        shards: Sequence[int] | None = None,
    ) -> None:
        if batch_size < 1 or prefetch < 1 or n_step < 1:
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
        self._chunks = LivingChunks()
        self._wake = threading.Event()
        self._supervisor = Supervisor("replay")
        stop = self._supervisor.stop_event
        followed = sorted(set(range(len(self.shards)) if shards is None else shards))
        if not followed:
            raise ValueError("shards is empty; name at least one, or leave it out")
        self.streams = self.shards.streams(followed)
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
        self.pointer_queue = PointerQueues(
            self.streams, stop=stop, needs_blocks=self._is_mirrored, on_ready=self._wake.set
        )
        self._drawer: BatchDrawer | None = None
        self._where: tuple[int, bool] | None = None  # contract id, and whether its observations are mirrored
        self.fetcher_queue = ExpFetcherQueue(prefetch)
        self._evicted_chunks = 0
        self._inserted_steps = 0
        self._newest_version = -1
        self._has_begun = False

    # -- hooks: on the replay's thread ---------------------------------------------------------------------------

    def _insert(self, table: Chunk) -> range:
        """Take in one decoded chunk; returns the sequence numbers of its new transitions."""
        if self.store is None:
            raise ValueError("a chunk came before the stream's contract was known")
        return self.store.insert(table)

    @abstractmethod
    def _sample(self, batch_size: int) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw transitions that are alive.

        Returns:
            Their sequence numbers [B], all in `self.alive`; or these and the probability of each [B].
        """

    def _evict(self) -> int:
        """How many of the oldest chunks shall go now: by default, what is over `capacity` or the byte bound, or gone.

        Raises:
            ValueError: the byte bound cannot hold `start_size` transitions.
        """
        return self._chunks.count_superfluous(
            len(self),
            capacity=self.capacity,
            start_size=self.start_size,
            gone_until=self.store.rows.gone_until if self.store is not None else 0,
            is_over=self.owner.is_over,
        )

    def start_sample_condition(self) -> bool:
        """Whether batches may be drawn: `start_size` transitions are there, and the stream was read to its end once."""
        return len(self) >= self.start_size and self.pointer_queue.has_caught_up.is_set()

    def aggregate_batch(self, rows: Rows) -> Batch:
        """Make tensors of gathered rows; the arrays belong to the batch."""
        if self.obs_spec is None:
            raise ValueError("the stream's contract is not known yet")
        return to_batch(rows, self.obs_spec, pin_memory=self.pin_memory)

    def update_priorities(self, sample_info: SampleInfo, priorities: NDArray[Any]) -> None:
        """Take the learner's new priorities [B] for a batch it has used; replays without priorities ignore them."""

    def commit(self, version: int | None = None) -> None:
        """Take note that parameters were broadcast that came of all batches handed out so far; never waits.

        Replays of a stream that is consumed let these batches' steps go; the others ignore it.

        Args:
            version: of these parameters, if known.
        """

    # -- what the learner calls ------------------------------------------------------------------------------------

    def start_threads(self) -> None:
        """Start the background threads; also makes CPython switch threads more often (`SWITCH_INTERVAL_S`)."""
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        for queue in self.pointer_queue.queues:
            self._supervisor.spawn(f"enqueue-{queue.stream.shard}", queue.enqueue_step)
        self._supervisor.spawn("replay", self.step)

    def batch_iterator(self) -> Iterator[tuple[int, Batch]]:
        """Yield (i, batch), waiting for each, until `stop()`.

        Raises:
            ThreadFailedError: a background thread died.
        """
        i = 0
        while not self._supervisor.stop_event.is_set():
            batch = self.dequeue(timeout_s=0.5)
            if batch is not None:
                yield i, batch
                i += 1
        self.check()

    def dequeue(self, timeout_s: float) -> Batch | None:
        """The next batch; None if none was ready in time.

        Raises:
            ThreadFailedError: a background thread died.
        """
        batch = self.fetcher_queue.dequeue(timeout_s)
        self._wake.set()
        if batch is None:
            self.check()
        return batch

    def check(self) -> None:
        """Raise what killed a background thread, as `ThreadFailedError`."""
        self._supervisor.check()

    def stop(self) -> None:
        """Ask the threads to end; a batch iterator ends too."""
        self._supervisor.stop()
        self._wake.set()

    def join(self, timeout_s: float = 5.0) -> bool:
        """Wait for the threads and give the stream's lease back; returns whether all ended."""
        has_ended = self._supervisor.join(timeout_s)
        self.owner.release()
        if has_ended and self.store is not None:
            self.store.rows.close()
        return has_ended

    def step(self, timeout_s: float = 0.05) -> bool:
        """One turn of the replay's thread: take in, let go, renew, draw; waits a moment if there is nothing to do.

        Returns:
            Whether something was done.
        """
        self.owner.claim()
        has_worked = self._take_in()
        if not self._has_begun and self.pointer_queue.has_caught_up.is_set() and not len(self.pointer_queue):
            self._has_begun = True
            if len(self) < self.start_size or not self.owner.is_owner:
                self.owner.rebase(len(self))
        has_drawn, is_limited = self._draw_ahead()
        has_worked |= has_drawn
        self.owner.renew(is_waiting=is_limited)
        if not has_worked:
            self._wake.wait(min(timeout_s, 0.005) if is_limited else timeout_s)
            self._wake.clear()
        return has_worked

    # -- what it knows -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.store) if self.store is not None else 0

    @property
    def alive(self) -> range:
        """Sequence numbers of the transitions that can be drawn."""
        if self.store is None:
            return range(0)
        return range(self.store.transitions.tail, self.store.transitions.head)

    @property
    def obs_spec(self) -> ObsSpec | None:
        """Leaves of an observation; None until the first chunk came."""
        return self.store.contract.stacked_obs if self.store is not None else None

    @property
    def global_step(self) -> int:
        """Env steps of the whole run."""
        return self.owner.global_step

    @property
    def num_samples(self) -> int:
        """Transitions drawn in the whole run."""
        return self.owner.samples

    @property
    def epoch(self) -> str:
        """The shards' epochs; it changes when a Redis was emptied."""
        return self.owner.epoch

    def state_dict(self) -> dict[str, Any]:
        """Counters for a checkpoint; the contents are in Redis."""
        return self.owner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from a checkpoint; before `start_threads`."""
        self.owner.load_state_dict(state)

    def metrics(self) -> dict[str, float]:
        """Size, bytes and rates since the start."""
        store = self.store
        return {
            "replay/transitions": len(self),
            "replay/fill": len(self) / self.capacity,
            "replay/mirrored_bytes": store.rows.nbytes + store.transitions.nbytes if store else 0,
            "replay/gone_rows": store.rows.gone_rows if store else 0,
            "replay/inserted_steps": self._inserted_steps,
            "replay/evicted_chunks": self._evicted_chunks,
            "replay/refused_chunks": self.pointer_queue.refused_chunks,
            "replay/gone_chunks": self.pointer_queue.gone_chunks,
            "replay/ready_batches": len(self.fetcher_queue),
            "replay/newest_version": self._newest_version,
            **self.owner.metrics(),
        }

    # -- inside ------------------------------------------------------------------------------------------------------

    def _take_in(self) -> bool:
        taken = 0
        while taken < _CHUNKS_PER_STEP:
            chunk = self.pointer_queue.dequeue()
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
        if taken:
            self._let_go()
        return taken > 0

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
        rows = None if self._is_mirrored(contract) else RemoteRows(contract, self.streams, self._supervisor.stop_event)
        self.store = self._make_store(contract, rows)
        self._drawer = BatchDrawer(self.store, self.batch_size, sample=self._sample, after_loss=self._after_loss)

    def _make_store(self, contract: Contract, observations: Observations | None) -> TransitionStore:
        return TransitionStore(
            contract, capacity=self.capacity, n_step=self.n_step, gamma=self.gamma, observations=observations
        )

    def _is_mirrored(self, contract: Contract) -> bool:
        """Where the observations of a contract are; asked by both threads, and decided by the first."""
        if self._where is None or self._where[0] != contract.id:
            chosen = choose(self.observations, contract, capacity=self.capacity, mirror_max_bytes=self.mirror_max_bytes)
            self._where = contract.id, chosen == "mirrored"
        return self._where[1]

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
        if self._drawer is None:
            return False, False
        asked, has_asked, is_limited = self._drawer.num_asked, False, False
        if self.fetcher_queue.room > asked and self.start_sample_condition():
            is_limited = not self.owner.may_sample((asked + 1) * self.batch_size)
            has_asked = not is_limited
        if has_asked and self._drawer.asks_ahead:
            self._drawer.ask()
            if asked < self._drawer.asks_ahead:
                return True, False
        if not asked and not has_asked:
            return False, is_limited
        batch = self._next_batch()
        if batch is not None:
            self.fetcher_queue.put(batch)
        return True, is_limited

    def _next_batch(self) -> Batch | None:
        """The oldest batch that was asked for, or a new one; None if its observations are gone."""
        if self._drawer is None:
            raise ValueError("nothing was inserted yet")
        if not self._drawer.num_asked:
            self._drawer.ask()
        rows = self._drawer.collect()
        if rows is None:
            return None
        self.owner.count_samples(len(rows.reward))
        return self.aggregate_batch(rows)
