"""Replay: the learner's view of the streams in Redis. Subclasses say what is kept and what is drawn.

These threads work for it once `start_threads()` was called:

    enqueue (one a shard)   PointerQueue: waits for Redis, downloads and decodes chunks
    replay                  step(), see `engine`: takes chunks in, lets old ones go, draws batches ahead

So the index has one owner and needs no lock: hooks run on the replay's thread, never two at a time. The learner's loop:

    replay.start_threads()
    for i, batch in replay.batch_iterator():
        learner.optimize(i, batch)
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from surreal.distributed.experience.format.codec import Chunk
from surreal.replay.engine.engine import ReplayEngine
from surreal.replay.engine.fetcher import to_batch
from surreal.replay.engine.sampling import Drawn
from surreal.replay.store.storage import Rows
from surreal.specs import ObsSpec
from surreal.types import Batch, SampleInfo

#: A thread that is busy in Python starves the training thread at CPython's default of 5 ms; at 0.2 ms prefetching
#: costs the learner a few per cent.
SWITCH_INTERVAL_S = 0.0002


class Replay(ReplayEngine):
    """Base of all replays: follows the run's shards, owns them (or not), and hands out batches.

    Args:
        client: the replay server; or the `ReplayShards`, if there are several.
        batch_size: transitions of a batch, >= 1.
        capacity: transitions kept; the oldest chunks go first, so up to one chunk fewer may be alive, and one more
            where fewer would be less than `start_size`.
        max_bytes: bytes kept in Redis; None: as much as Redis' memory limit lets us. Of a follower: bytes in Redis of
            what it keeps an index of; None: no bound.
        max_age_s: experience that was stored longer ago leaves, s, > 0, but never more than leaves `start_size`
            transitions; None: it stays for as long as there is room.
        start_size: transitions that must be there before the first batch, 1 .. capacity.
        gamma: discount factor of one step, 0..1.
        n_step: steps summed in a transition's reward, 1 .. lookahead of the stream + 1.
        samples_per_insert: transitions drawn for each env step; None: no limiter. Agents whose senders are limited
            wait for it, and so does the learner.
        samples_per_insert_tolerance: half the width of the limiter's band, samples; default: what fits 4 batches.
        prefetch: batches gathered ahead, >= 1; None: 2 to 8, as many as fit into 16 MiB.
        observations: "mirrored" downloads them once into this process; "compressed" does so too, and keeps each row of
            256 bytes or more compressed; "remote" fetches those of a batch from Redis when it is drawn; "auto" mirrors
            what fits into `mirror_max_bytes`, and is remote otherwise.
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

    # -- hooks: on the replay's thread ---------------------------------------------------------------------------

    def _insert(self, table: Chunk) -> range:
        """Take in one decoded chunk; returns the sequence numbers of its new transitions."""
        if self.store is None:
            raise ValueError("a chunk came before the stream's contract was known")
        return self.store.insert(table)

    @abstractmethod
    def _sample(self, batch_size: int) -> Drawn:
        """Draw transitions that are alive.

        Returns:
            Their sequence numbers [B], all in `self.alive`; or these and the probability of each [B].
        """

    def _evict(self) -> int:
        """How many of the oldest chunks shall go now: by default, what is over `capacity` or the byte bound, too
        old, or gone.

        Raises:
            ValueError: the byte bound cannot hold `start_size` transitions.
        """
        return self._chunks.count_superfluous(
            len(self),
            capacity=self.capacity,
            start_size=self.start_size,
            is_old=self._ages.is_old,
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
        if self.fetcher_queue.is_low and not self._wake.is_set():
            self._wake.set()  # to fill it in one go: changing threads costs more than a batch
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
        """Wait for the threads and give the stream's lease back; returns whether all ended.

        The lease of a replay with a thread that hangs runs out by itself.
        """
        if not self._supervisor.join(timeout_s):
            return False
        self.owner.release()
        if self.store is not None:
            self.store.rows.close()
        return True

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
