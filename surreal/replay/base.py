"""Replay: the learner's view of the streams in Redis. Subclasses say what is kept and what is sampled.

These threads work for it once `start_threads()` was called:

    enqueue (one a shard)   PointerQueue: waits for Redis, downloads and decodes chunks
    replay                  step(), see `engine`: takes chunks in, lets old ones go, makes batches ahead

So the index has one owner and needs no lock: hooks run on the replay's thread, never two at a time. The learner's loop:

    with replay:                                     # start_threads(), and stop() and join() at the end
        for i, batch in replay.batch_iterator():
            learner.optimize(i, batch)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, Self

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ObsSpec
from surreal.base.types import SampleInfo
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.engine.batches import B, BatchMaker, HandsOut, TransitionMaker
from surreal.replay.engine.conflicts import ReplayPlan, conflicts
from surreal.replay.engine.engine import ReplayEngine
from surreal.replay.engine.sampling import Sampled
from surreal.replay.store.place import ObservationPlace
from surreal.replay.store.rows import Mode, Observations
from surreal.replay.store.storage import TransitionStore
from surreal.replay.stream.limiter import SamplesPerInsert


class Replay(ABC, Generic[B]):
    """Base of all replays: follows the run's shards, owns them (or not), and hands out batches of one kind, B.

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
        samples_per_insert: transitions sampled for each env step; None: no limiter. Agents whose senders are limited
            wait for it, and so does the learner.
        samples_per_insert_tolerance: half the width of the limiter's band, samples; default: what fits 4 batches.
        prefetch: batches gathered ahead, >= 1; None: 2 to 8, as many as fit into 16 MiB.
        observations: "mirrored" downloads them once into this process; "compressed" does so too, and keeps each row of
            256 bytes or more compressed; "remote" fetches those of a batch from Redis when it is made; "auto" mirrors
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

    #: What learners must be able to take, see `Learner.takes`.
    hands_out: ClassVar[HandsOut] = "transitions"
    #: Mode of the streams that this replay owns: "window" lets go what is oldest, "consume" what was used.
    stream_mode: ClassVar[Literal["window", "consume"]] = "window"
    #: Whether `update_priorities` does something.
    wants_priorities: bool = False
    #: Transitions that the limiter counts for each row of a batch.
    steps_per_sample: int = 1

    @classmethod
    def count_steps_per_sample(cls, **_: Any) -> int:
        """`steps_per_sample` of a replay that gets these arguments, for checks before there is one."""
        return cls.steps_per_sample

    @classmethod
    def conflicts(cls, plan: ReplayPlan) -> Iterator[tuple[str, str]]:
        """Yield what a run sets and this class cannot work with: key, and a sentence that begins with its value."""
        yield from conflicts(plan, steps_per_sample=cls.count_steps_per_sample(**plan.arguments))

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
        self.batch_size = batch_size
        self.capacity = capacity
        self.start_size = start_size
        self.gamma = gamma
        self.n_step = n_step
        self.pin_memory = pin_memory
        self.rng = np.random.default_rng(seed)
        self.limiter = SamplesPerInsert.for_batches(
            samples_per_insert,
            start_size=start_size,
            tolerance=samples_per_insert_tolerance,
            batch_size=batch_size * self.steps_per_sample,
        )
        #: By sender: number of the last chunk whose complete trajectories were all handed out.
        self.learned: Mapping[str, int] = {}
        self.shards = ReplayShards.of(client)
        self._engine: ReplayEngine[B] = ReplayEngine(
            self,
            self.shards,
            max_bytes=max_bytes,
            max_age_s=max_age_s,
            prefetch=prefetch,
            place=ObservationPlace(observations, capacity=capacity, mirror_max_bytes=mirror_max_bytes),
            stream_mode=self.stream_mode,
            is_owner=is_owner,
            lease_s=lease_s,
            follow=shards,
        )
        self.streams = self._engine.streams
        self.owner = self._engine.owner
        self.pointer_queue = self._engine.pointer_queue
        self.fetcher_queue = self._engine.fetcher_queue
        self.chunks = self._engine.intake.chunks

    # -- hooks: on the replay's thread ---------------------------------------------------------------------------

    @property
    def makes_own_batches(self) -> bool:
        """Whether a subclass overrides `aggregate_batch`, which then takes whatever its `_sample` gives."""
        return type(self).aggregate_batch is not Replay.aggregate_batch

    def _insert(self, table: Chunk) -> range:
        """Take in one decoded chunk.

        A replay with a custom data structure copies what it needs, because the arrays are views of the received bytes.

        Args:
            table: `columns["action"]` and `columns["reward"]`, `terminated` and `truncated` [n_steps, ...]; `own`, the
                positions of this chunk's steps (the others are lookahead); `obs_row`, each step's row of the
                observations in `leaves`, whose next observation is one row further. `leaves` is empty where
                observations are remote.

        Returns:
            The sequence numbers of its new transitions in the built-in store. A hook that returns nothing put there
            what the store has gained meanwhile, if anything.
        """
        if self.store is None:
            raise ValueError("a chunk came before the stream's contract was known")
        return self.store.insert(table)

    @abstractmethod
    def _sample(self, batch_size: int) -> Any:
        """Sample transitions that are alive.

        Returns:
            Their sequence numbers [B], all in `self.alive`; or a tuple of these and the probability of each [B]. A
            class that overrides `aggregate_batch` may return anything else, such as a list of rows.
        """

    def _sample_again(self, numbers: NDArray[np.int64]) -> Sampled:
        """Sample a batch that gives others to the places of some `numbers` [B]; what is handed out once stays."""
        sampled: Sampled = self._sample(len(numbers))
        return sampled

    def _give_back(self, numbers: NDArray[np.int64]) -> None:
        """Take back what `_sample` gave and hands out only once: observations of this batch are gone."""

    def _evict(self) -> int:
        """How many of the oldest chunks shall go now: by default, what is over `capacity` or `max_bytes`, old, or gone.

        Raises:
            ValueError: the byte bound cannot hold `start_size` transitions.
        """
        return self._engine.intake.count_superfluous(capacity=self.capacity, start_size=self.start_size)

    def start_sample_condition(self) -> bool:
        """Whether there may be batches: `start_size` transitions are there, and the stream was read to its end once."""
        return len(self) >= self.start_size and self.pointer_queue.has_caught_up.is_set()

    def aggregate_batch(self, gathered: Any) -> B:
        """Make a batch of tensors.

        Args:
            gathered: `Gathered` or `GatheredTrajectories`, whose arrays belong to the batch; or what `_sample`
                returned, if the class samples its own rows.
        """
        if (batches := self._engine.intake.batches) is None:
            raise ValueError("the stream's contract is not known yet")
        return batches.to_batch(gathered)

    def _may_take_in(self, shard: int) -> bool:
        """Whether chunks of a shard can be inserted now."""
        return True

    def _make_batches(self, contract: Contract, observations: Observations) -> BatchMaker[Any, Any]:
        """Make what holds the transitions, and batches of them, once the stream's contract is known."""
        return TransitionMaker(
            contract,
            observations,
            capacity=self.capacity,
            n_step=self.n_step,
            gamma=self.gamma,
            pin_memory=self.pin_memory,
        )

    def _count_samples(self, gathered: Any) -> int:
        """Transitions that a batch counts for."""
        return len(gathered.sample_info.generation) * self.steps_per_sample

    # -- what the learner calls ------------------------------------------------------------------------------------

    def update_priorities(self, sample_info: SampleInfo, priorities: NDArray[Any]) -> None:
        """Take the learner's new priorities [B] for a batch it has used; replays without priorities ignore them."""

    def commit(self, version: int | None = None) -> None:
        """Take note that parameters, of this version, were broadcast that came of all batches handed out; never waits.

        Replays of a stream that is consumed let these batches' steps go; the others ignore it.
        """

    def start_threads(self) -> None:
        """Start the background threads; also makes CPython switch threads more often, see `ReplayEngine.start`."""
        self._engine.start(self.step)

    def step(self, timeout_s: float = 0.05) -> bool:
        """One turn of the replay's thread, for a loop without threads: see `ReplayEngine.step`."""
        return self._engine.step(timeout_s)

    def batch_iterator(self) -> Iterator[tuple[int, B]]:
        """Yield (i, batch), waiting for each, until `stop()`; raises as `check` does."""
        i = 0
        while not self._engine.supervisor.stop_event.is_set():
            batch = self.dequeue(timeout_s=0.5)
            if batch is not None:
                yield i, batch
                i += 1
        self.check()

    def dequeue(self, timeout_s: float) -> B | None:
        """The next batch, None if none was ready in time; raises as `check` does."""
        return self._engine.dequeue(timeout_s)

    def has_batch(self, timeout_s: float) -> bool:
        """Whether `dequeue` has a batch, waiting for one; raises as `check` does."""
        return self._engine.has_batch(timeout_s)

    def check(self) -> None:
        """Raise `ThreadFailedError` if one of the background threads died."""
        self._engine.supervisor.check()

    def stop(self) -> None:
        """Ask the threads to end; a batch iterator ends too."""
        self._engine.stop()

    def join(self, timeout_s: float = 5.0) -> bool:
        """Wait for the threads and give the lease back, which else runs out; returns whether all ended."""
        return self._engine.join(timeout_s)

    def __enter__(self) -> Self:
        self.start_threads()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    # -- what it knows -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._engine)

    @property
    def store(self) -> TransitionStore | None:
        """What holds the transitions; None until the first chunk came."""
        return self._engine.store

    @property
    def alive(self) -> range:
        """Sequence numbers of the transitions that can be sampled."""
        store = self.store
        return range(store.transitions.tail, store.transitions.head) if store is not None else range(0)

    @property
    def obs_spec(self) -> ObsSpec | None:
        """Leaves of an observation; None until the first chunk came."""
        return self.store.contract.stacked_obs if self.store is not None else None

    @property
    def global_step(self) -> int:
        """Env steps of the whole run."""
        return self.owner.global_step

    @property
    def is_starved(self) -> bool:
        """Whether what keeps it from making another batch is that the agents have sent too little."""
        return self._engine.is_starved

    @property
    def num_samples(self) -> int:
        """Transitions sampled in the whole run."""
        return self.owner.samples

    @property
    def epoch(self) -> str:
        """The shards' epochs; it changes when a Redis was emptied."""
        return self.owner.epoch

    def state_dict(self) -> dict[str, Any]:
        """Counters for a checkpoint; the contents are in Redis."""
        return self.owner.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue counting from a checkpoint; before `start_threads`.

        Raises:
            ValueError: a value is not a count.
        """
        self.owner.load_state_dict(state)

    def metrics(self) -> dict[str, float]:
        """Size, bytes and rates since the start."""
        return {"replay/fill_ratio": len(self) / self.capacity, **self._engine.metrics()}
