"""Replay: the learner's view of the streams in Redis. Subclasses decide what is kept and what is sampled.

These threads work for it after `start_threads()`:

    enqueue (one per shard)   PointerQueue: waits for Redis, downloads and decodes chunks
    replay                    step(): one turn after another, see `surreal.replay.turn`

The turn works on `state`, which the hooks may read. Only the replay's thread changes it, so there is no lock, and hooks
never run at the same time. The learner's loop:

    with replay:                                     # start_threads(), and stop() and join() at the end
        for i, batch in replay.batch_iterator():
            learner.optimize(i, batch)
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from surreal.base.ranges import NonNegativeInt, Positive, PositiveInt, Share, checked
from surreal.base.system.logs import WaitNotice
from surreal.base.system.threads import Supervisor
from surreal.base.types import Batch, SampleInfo
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.batches import B, HandsOut, to_batch
from surreal.replay.running import RunningReplay
from surreal.replay.state import ObservationPlace, ReplayState
from surreal.replay.store.rows import Mode, Observations, sample_uniform
from surreal.replay.store.storage import TransitionStore
from surreal.replay.stream.conflicts import ReplayPlan, conflicts
from surreal.replay.stream.limiter import SamplesPerInsert
from surreal.replay.turn import count_superfluous, take_turn

logger = logging.getLogger(__name__)


class Replay(RunningReplay[B]):
    """Base of all replays: follows the run's shards, may own them, and returns batches of one kind, B.

    Args:
        client: the replay server; or the `ReplayShards`, if there are several.
        batch_size: transitions of a batch.
        capacity: transitions kept. Whole chunks leave, oldest first, so up to one chunk fewer may be alive, or one more
            if the rest would be less than `start_size`.
        max_bytes: bytes kept in Redis; None: as many as fit under Redis' memory limit. For a follower, bytes in Redis
            of the chunks in its index; None: no bound.
        max_age_s: age, s, at which experience is dropped while `start_size` transitions remain; None: no bound.
        start_size: transitions required before the first batch, 1 .. capacity.
        gamma: discount factor of one step.
        n_step: steps summed in a transition's reward, 1 .. lookahead of the stream + 1.
        samples_per_insert: transitions sampled for each env step; None: no limiter. Agents whose senders are limited
            wait for it, and so does the learner.
        samples_per_insert_tolerance: half the width of the limiter's band, samples; default: enough for 4 batches.
        prefetch: batches gathered ahead; None: 2 to 16, as many as fit into 16 MiB.
        observations: "mirrored" downloads them once into this process. "compressed" also does, and compresses each row
            of 256 bytes or more. "remote" fetches the observations of a batch from Redis when it is made. "auto" is
            "mirrored" if they fit into `mirror_max_bytes`, and "remote" otherwise.
        mirror_max_bytes: bytes of this process that "auto" uses for observations; more mirrors larger replays.
        is_owner: whether to own the stream: evict chunks, and grant the limiter's credit. A follower deletes nothing,
            and samples again if the owner evicted its sample.
        pin_memory: whether to make batches in page-locked memory, for a learner on a GPU; needs CUDA.
        lease_s: time after which another replay may own the stream, if this one is silent, s.
        seed: seed of the sampling.
        shards: numbers of the shards to follow; None: all. Several learners can split them.

    Raises:
        ValueError: an argument is out of range, or the settings cannot work together.
    """

    #: The kind of batches, which the learner must accept, see `Learner.takes`.
    hands_out: ClassVar[HandsOut] = "transitions"
    #: Mode of the streams that this replay owns: "window" drops the oldest chunks, "consume" those that were used.
    stream_mode: ClassVar[Literal["window", "consume"]] = "window"
    #: Whether `update_priorities` does something.
    wants_priorities: bool = False
    #: Transitions that count as sampled for each row of a batch; 0 if `aggregate_batch` counts them itself.
    steps_per_sample: int = 1
    #: Rows at the start of a batch that are handed out only once, so that no other can take their place.
    drawn_once: int = 0

    @classmethod
    def count_steps_per_sample(cls, **_: Any) -> int:
        """`steps_per_sample` of a replay that gets these arguments, for checks before there is one."""
        return cls.steps_per_sample

    @classmethod
    def conflicts(cls, plan: ReplayPlan) -> Iterator[tuple[str, str]]:
        """Yield settings of a run that this class does not support: key, and a sentence that begins with the value."""
        yield from conflicts(plan, steps_per_sample=cls.count_steps_per_sample(**plan.arguments))

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        batch_size: PositiveInt = 64,
        capacity: PositiveInt = 100_000,
        max_bytes: PositiveInt | None = None,
        max_age_s: Positive | None = None,
        start_size: PositiveInt = 1000,
        gamma: Share = 0.99,
        n_step: PositiveInt = 1,
        samples_per_insert: Positive | None = None,
        samples_per_insert_tolerance: Positive | None = None,
        prefetch: PositiveInt | None = None,
        observations: Mode = "auto",
        mirror_max_bytes: int = 4 << 30,
        is_owner: bool = True,
        pin_memory: bool = False,
        lease_s: Positive = 5.0,
        seed: NonNegativeInt | None = None,
        shards: Sequence[int] | None = None,
    ) -> None:
        if start_size > capacity:
            raise ValueError(f"start_size is {start_size}; it must be 1 .. capacity = {capacity}")
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
        self._notice = WaitNotice(logger, level=logging.INFO)
        supervisor = Supervisor("replay")
        state: ReplayState[B] = ReplayState.open(
            self.shards,
            self.limiter,
            ObservationPlace(observations, capacity=capacity, mirror_max_bytes=mirror_max_bytes),
            follow=shards,
            mode=self.stream_mode,
            is_owner=is_owner,
            max_bytes=max_bytes,
            max_age_s=max_age_s,
            lease_s=lease_s,
            prefetch=prefetch,
            stop=supervisor.stop_event,
        )
        super().__init__(state, supervisor)

    # -- hooks: on the replay's thread ---------------------------------------------------------------------------

    def _insert(self, table: Chunk) -> range:
        """Insert one decoded chunk.

        A replay with a custom data structure copies what it needs, because the arrays are views of the received bytes.

        Args:
            table: `columns["action"]` and `columns["reward"]`, `terminated` and `truncated` [n_steps, ...]; `own`, the
                positions of this chunk's steps (the others are lookahead); `obs_row`, each step's row of the
                observations in `leaves`, whose next observation is one row further. `leaves` is empty if observations
                are remote.

        Returns:
            The sequence numbers of its new transitions in the built-in store. If a hook returns nothing, they are
            those that the store has gained in the meantime.
        """
        store = self.state.store
        if store is None:
            raise ValueError("a chunk came before the stream's contract was known")
        return store.insert(table)

    @abstractmethod
    def _sample(self, batch_size: int) -> Any:
        """Sample transitions that are alive.

        Returns:
            Their sequence numbers [B], all in `self.alive`; or a tuple of these and the probability of each [B]. A
            class that overrides `aggregate_batch` may return anything else, such as a list of rows.
        """

    def _evict(self) -> int:
        """Count the oldest chunks to drop now: by default, those over `capacity` or `max_bytes`, too old, or gone.

        Raises `ValueError` if the byte bound cannot hold `start_size` transitions.
        """
        return count_superfluous(self.state, capacity=self.capacity, start_size=self.start_size)

    def start_sample_condition(self) -> bool:
        """Whether there may be batches: `start_size` transitions exist, and the stream was read to its end once."""
        return len(self) >= self.start_size and self.pointer_queue.has_caught_up.is_set()

    def aggregate_batch(self, gathered: Any) -> B:
        """Make a batch of tensors.

        Args:
            gathered: `Gathered` or `GatheredTrajectories`, whose arrays belong to the batch; or the result of
                `_sample`, if the class samples its own rows.
        """
        store = self.state.store
        if store is None:
            raise ValueError("the stream's contract is not known yet")
        batch: Any = to_batch(gathered, store.contract.stacked_obs, pin_memory=self.pin_memory)
        return batch  # type: ignore[no-any-return]

    @property
    def makes_own_batches(self) -> bool:
        """Whether a subclass overrides `aggregate_batch`, which then accepts any result of its `_sample`."""
        return type(self).aggregate_batch is not Replay.aggregate_batch

    @property
    def samples_single_rows(self) -> bool:
        """Whether `_sample` draws each row by itself, so that it may draw those of several batches in one call."""
        return False

    def _make_store(self, contract: Contract, observations: Observations) -> TransitionStore:
        """Create the built-in store, when the first chunk brings the stream's contract."""
        return TransitionStore(
            contract, capacity=self.capacity, n_step=self.n_step, gamma=self.gamma, observations=observations
        )

    # -- the learner's calls ---------------------------------------------------------------------------------------

    def update_priorities(self, sample_info: SampleInfo, priorities: NDArray[Any]) -> None:
        """Take the learner's new priorities [B] for a batch it has used; replays without priorities ignore them."""

    def commit(self, version: int | None = None) -> None:
        """Record the broadcast of parameters of this version, which learned from all batches returned so far.

        It never waits. Replays that consume their stream drop the steps of these batches; the others ignore it.
        """

    def step(self, timeout_s: float = 0.05) -> bool:
        """Take one turn of the replay's thread, also in a loop without threads: see `turn.take_turn`."""
        return take_turn(self, self.state, timeout_s)

    def batch_iterator(self) -> Iterator[tuple[int, B]]:
        """Yield (i, batch), waiting for each, until `stop()`; raises as `check` does."""
        i = 0
        while not self.supervisor.stop_event.is_set():
            batch = self.dequeue(timeout_s=0.5)
            if batch is not None:
                yield i, batch
                i += 1
        self.check()

    def dequeue(self, timeout_s: float) -> B | None:
        """Return the next batch, None if none was ready in time; raises as `check` does."""
        batch = self.fetcher_queue.dequeue(timeout_s)
        self._after_wait(has_batch=batch is not None)
        return batch

    def has_batch(self, timeout_s: float) -> bool:
        """Whether `dequeue` has a batch, waiting for one; raises as `check` does."""
        has_batch = self.fetcher_queue.wait(timeout_s)
        self._after_wait(has_batch=has_batch)
        return has_batch

    def __len__(self) -> int:
        store = self.state.store
        return len(store.transitions) if store is not None else 0

    @property
    def alive(self) -> range:
        """Sequence numbers of the transitions that can be sampled."""
        store = self.state.store
        return range(store.transitions.tail, store.transitions.head) if store is not None else range(0)

    def _after_wait(self, *, has_batch: bool) -> None:
        wake = self.state.wake
        if self.fetcher_queue.is_low and not wake.is_set():
            wake.set()  # to fill it in one go: changing threads costs more than a batch
        if has_batch:
            if self._notice.began_s is not None:
                self._notice.end()
            return
        self.check()
        self._notice.tell("%s", self._awaited())


class UniformReplay(Replay[Batch]):
    """Samples each live transition with the same probability, with replacement; arguments as in `Replay`.

    Mnih et al. 2013, arXiv:1312.5602.
    """

    @property
    def samples_single_rows(self) -> bool:
        return type(self)._sample is UniformReplay._sample

    def _sample(self, batch_size: int) -> NDArray[np.int64]:
        alive = self.alive
        return sample_uniform(self.rng, alive.start, alive.stop, batch_size)
