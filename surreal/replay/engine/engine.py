"""ReplayEngine: the wheels of a replay, and the turn of its thread; `Replay` says what users see of it.

A turn takes in what the queues have and lets old chunks go (`Intake`), renews the leases and the limiter's credit,
samples (`_sample`), gathers (from this process or from Redis, see `store.place`) and aggregates (`aggregate_batch`)
ahead. A `BatchMaker` knows whether that makes transitions or trajectories.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from surreal.base.liveness.wait_notice import WaitNotice
from surreal.base.system.threads import Supervisor
from surreal.base.types import Batch, TrajectoryBatch
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.engine.fetcher import ExpFetcherQueue
from surreal.replay.engine.hooks import Hooks
from surreal.replay.engine.intake import Intake
from surreal.replay.engine.sampling import BatchSampler, OwnRows, Sampled, check_sampled
from surreal.replay.store.place import ObservationPlace
from surreal.replay.store.storage import TransitionStore
from surreal.replay.stream.keeper import StreamKeeper

logger = logging.getLogger(__name__)

B = TypeVar("B", bound=Batch | TrajectoryBatch)

#: A thread that is busy in Python starves the training thread at CPython's default of 5 ms; at 0.2 ms prefetching
#: costs the learner a few per cent.
SWITCH_INTERVAL_S = 0.0002

_BATCHES_PER_STEP = 8


class ReplayEngine(Generic[B]):
    """Turns the wheels; arguments that are not named here are as in `Replay`.

    Args:
        hooks: the replay; before it makes the engine, it has its settings.
        shards: the servers.
        place: decides where observations are.
        stream_mode: of the streams that are owned.
        follow: numbers of the shards to follow; None: all.

    Attributes:
        has_begun: whether the streams were read to their ends once.
        is_starved: whether there is room for another batch, but too little experience to make it of.
    """

    def __init__(
        self,
        hooks: Hooks[B],
        shards: ReplayShards,
        *,
        max_bytes: int | None,
        max_age_s: float | None,
        prefetch: int | None,
        place: ObservationPlace,
        stream_mode: Literal["window", "consume"],
        is_owner: bool,
        lease_s: float,
        follow: Sequence[int] | None,
    ) -> None:
        followed = sorted(set(range(len(shards)) if follow is None else follow))
        if not followed:
            raise ValueError("shards is empty; name at least one, or leave it out")
        self._hooks = hooks
        self.wake = threading.Event()
        self.supervisor = Supervisor("replay")
        self.streams = shards.streams(followed)
        stop = self.supervisor.stop_event
        self.owner = StreamKeeper(
            self.streams,
            hooks.limiter,
            is_owner=is_owner,
            max_bytes=max_bytes,
            lease_s=lease_s,
            stop=stop,
            mode=stream_mode,
            others=shards.streams([shard for shard in range(len(shards)) if shard not in followed]),
        )
        self.intake: Intake[B] = Intake(
            hooks, self.streams, self.owner, place=place, max_age_s=max_age_s, stop=stop, on_ready=self.wake.set
        )
        self.pointer_queue = self.intake.pointer_queue
        self.fetcher_queue: ExpFetcherQueue[B] = ExpFetcherQueue(prefetch)
        self._sampler: BatchSampler | None = None
        self._notice = WaitNotice(logger, level=logging.INFO)
        self.has_begun = False
        self.is_starved = True

    def __len__(self) -> int:
        store = self.store
        return len(store) if store is not None else 0

    @property
    def store(self) -> TransitionStore | None:
        """What holds the transitions; None until the first chunk came."""
        batches = self.intake.batches
        return batches.store if batches is not None else None

    # -- on the learner's thread -------------------------------------------------------------------------------------

    def start(self, step: Callable[[], object]) -> None:
        """Start the threads: those that read the streams, and one that calls `step`, which is to call ours.

        Also makes CPython switch threads more often.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL_S))
        for queue in self.pointer_queue.queues:
            self.supervisor.spawn(f"enqueue-{queue.stream.shard}", queue.enqueue_step)
        self.supervisor.spawn("replay", step)

    def dequeue(self, timeout_s: float) -> B | None:
        """The next batch; None if none was ready in time.

        Raises:
            ThreadFailedError: a background thread died.
        """
        batch = self.fetcher_queue.dequeue(timeout_s)
        self._after_wait(has_batch=batch is not None)
        return batch

    def has_batch(self, timeout_s: float) -> bool:
        """Whether there is a batch to dequeue, waiting for one; raises as `dequeue` does."""
        has_batch = self.fetcher_queue.wait(timeout_s)
        self._after_wait(has_batch=has_batch)
        return has_batch

    def stop(self) -> None:
        """Ask the threads to end."""
        self.supervisor.stop()
        self.wake.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads, and give back leases and connections; returns whether all ended."""
        if not self.supervisor.join(timeout_s):
            return False
        self.owner.release()
        if self.store is not None:
            self.store.observations.close()
        return True

    def metrics(self) -> dict[str, float]:
        """Size, bytes and rates since the start."""
        store = self.store
        return {
            "replay/transitions_count": len(self),
            "replay/mirrored_bytes": store.observations.nbytes + store.transitions.nbytes if store else 0,
            "replay/gone_rows_total": store.observations.gone_rows if store else 0,
            "replay/ready_batches_count": len(self.fetcher_queue),
            **self.intake.metrics(),
            **self.owner.metrics(),
        }

    def _after_wait(self, *, has_batch: bool) -> None:
        if self.fetcher_queue.is_low and not self.wake.is_set():
            self.wake.set()  # to fill it in one go: changing threads costs more than a batch
        if has_batch:
            self._notice.end()
            return
        self.supervisor.check()
        self._notice.tell("%s", self._awaited())

    def _awaited(self) -> str:
        """What keeps the learner waiting."""
        hooks = self._hooks
        if self.store is None:
            return "waiting for the first experience of an agent"
        if not self.pointer_queue.has_caught_up.is_set():
            return f"reading the replay back, {len(self)} transitions so far"
        if len(self) < hooks.start_size:
            return f"filling the replay, {len(self)}/{hooks.start_size}"
        if not hooks.start_sample_condition():
            return "waiting for experience to make a batch of"
        return "waiting for more experience of the agents"

    # -- the turn ----------------------------------------------------------------------------------------------------

    def step(self, timeout_s: float) -> bool:
        """One turn: take in, let go, renew, sample; waits a moment if there is nothing to do.

        Returns:
            Whether something was done.
        """
        self.owner.claim()
        hooks = self._hooks
        has_worked, is_waiting = self.intake.take_in(), False
        if not self.has_begun and self.pointer_queue.has_caught_up.is_set() and not len(self.pointer_queue):
            self.has_begun = True
            if len(self) < hooks.start_size or not self.owner.is_owner:
                is_complete = self.owner.is_owner and not self.pointer_queue.lost_chunks
                self.owner.rebase(None if is_complete else len(self))
        elif self.has_begun and len(self) >= hooks.start_size and not hooks.start_sample_condition():
            # Something else is awaited, as lanes long enough for a sequence: the band begins with it, or the agents
            # would have no credit left to bring it.
            self.owner.rebase(hooks.start_size - 1)
            is_waiting = hooks.limiter is not None
        is_limited = False
        for _ in range(_BATCHES_PER_STEP):
            has_sampled, is_limited = self._sample_ahead()
            has_worked |= has_sampled
            if not has_sampled:
                break
        self.fetcher_queue.hand_over()
        self.owner.renew(is_waiting=is_waiting or is_limited)
        if not has_worked:
            self.wake.wait(min(timeout_s, 0.005) if is_limited else timeout_s)
            self.wake.clear()
        return has_worked

    def next_batch(self) -> B | None:
        """The oldest batch that was asked for, or a new one; None if its observations are gone."""
        sampler = self._open_sampler()
        if sampler is None:
            raise ValueError("nothing was inserted yet")
        if not sampler.num_asked:
            sampler.ask()
        gathered = sampler.collect()
        if gathered is None:
            return None
        if isinstance(gathered, OwnRows):
            self.owner.count_samples(gathered.size * self._hooks.steps_per_sample)
            return self._hooks.aggregate_batch(gathered.rows)
        self.owner.count_samples(self._hooks._count_samples(gathered))
        return self._hooks.aggregate_batch(gathered)

    def _sample_ahead(self) -> tuple[bool, bool]:
        """Make a batch if there is room for it; where observations are remote, ask for one and finish the one before.

        Returns:
            Whether something was done, and whether the limiter forbade to sample.
        """
        sampler = self._open_sampler()
        if sampler is None:
            return False, False
        asked, has_asked, is_limited = sampler.num_asked, False, False
        has_room = self.fetcher_queue.room > asked
        if has_room and self._hooks.start_sample_condition():
            samples_per_batch = self._hooks.batch_size * self._hooks.steps_per_sample
            is_limited = not self.owner.may_sample((asked + 1) * samples_per_batch)
            has_asked = not is_limited
        self.is_starved = has_room and not has_asked
        if has_asked and sampler.asks_ahead:
            sampler.ask()
            if asked < sampler.asks_ahead:
                return True, False
        if not asked and not has_asked:
            return False, is_limited
        batch = self.next_batch()
        if batch is None:
            return False, is_limited  # as while no shard answers: that lasts
        self.fetcher_queue.put(batch)
        return True, is_limited

    def _open_sampler(self) -> BatchSampler | None:
        if self._sampler is None and self.intake.batches is not None:
            self._sampler = BatchSampler(
                self.intake.batches,
                sample=self._sample,
                sample_again=self._sample_again,
                give_back=self._hooks._give_back,
                after_loss=self._after_loss,
            )
        return self._sampler

    def _sample(self) -> Sampled | OwnRows:
        hooks = self._hooks
        sampled = hooks._sample(hooks.batch_size)
        if hooks.makes_own_batches and not isinstance(sampled, np.ndarray | tuple):
            return OwnRows(sampled, hooks.batch_size)
        return self._check_sampled(sampled, hooks._sample)

    def _sample_again(self, numbers: NDArray[np.int64]) -> Sampled:
        return self._check_sampled(self._hooks._sample_again(numbers), self._hooks._sample_again)

    def _check_sampled(self, sampled: Sampled, method: object) -> Sampled:
        store = self.store
        alive = range(store.transitions.tail, store.transitions.head) if store is not None else range(0)
        return check_sampled(sampled, method, alive=alive, batch_size=self._hooks.batch_size)

    def _after_loss(self) -> bool:
        """Observations were gone: let go what has lost them; returns whether batches may still be sampled."""
        self.intake.let_go()
        if len(self) < self._hooks.start_size:
            # The agents may have no credit left to fill the replay again; count from here.
            self.owner.rebase(len(self))
        return self._hooks.start_sample_condition()
