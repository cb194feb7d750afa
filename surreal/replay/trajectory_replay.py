"""TrajectoryReplay: base of the replays whose batches are trajectories [T, B] in place of transitions [B].

See `trajectories.unrolling` for what a batch holds. Subclasses say which trajectories come next, in `_next_batch`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.experience.format.codec import Contract
from surreal.replay.base import Replay
from surreal.replay.store.observations import Observations
from surreal.replay.trajectories.unrolling import TrajectoryStore, Unrolled
from surreal.types import SampleInfo, TrajectoryBatch


class TrajectoryReplay(Replay):
    """Base of `FIFOReplay` and `SequenceReplay`; arguments as in `Replay`."""

    @property
    def trajectories(self) -> TrajectoryStore:
        """The store, once there is one.

        Raises:
            ValueError: nothing was inserted yet.
        """
        if not isinstance(self.store, TrajectoryStore):
            raise ValueError("nothing was inserted yet")
        return self.store

    # The base says Batch; a replay of trajectories hands out nothing else than these.
    def batch_iterator(self) -> Iterator[tuple[int, TrajectoryBatch]]:  # type: ignore[override]
        """Yield (i, batch), waiting for each, until `stop()`."""
        return cast(Iterator[tuple[int, TrajectoryBatch]], super().batch_iterator())

    def dequeue(self, timeout_s: float) -> TrajectoryBatch | None:  # type: ignore[override]
        """The next batch; None if none was ready in time."""
        return cast(TrajectoryBatch | None, super().dequeue(timeout_s))

    @abstractmethod
    def _next_batch(self) -> TrajectoryBatch | None:  # type: ignore[override]
        """The next batch, when `start_sample_condition` holds; None if its observations are gone."""

    def _make_store(self, contract: Contract, observations: Observations | None) -> TrajectoryStore:
        return TrajectoryStore(contract, capacity=self.capacity, gamma=self.gamma, observations=observations)

    def _draw_ahead(self) -> tuple[bool, bool]:
        if self.store is None or not self.fetcher_queue.room or not self.start_sample_condition():
            return False, False
        if not self.owner.may_sample(self.batch_size * self.steps_per_sample):
            return False, True
        batch = self._next_batch()
        if batch is None:
            self._after_loss()
        else:
            self.fetcher_queue.put(cast(Any, batch))
        return True, False

    def _gather(
        self, unrolled: Unrolled, probability: NDArray[np.float64], *, burn_in: int = 0
    ) -> TrajectoryBatch | None:
        store = self.trajectories
        starts = unrolled.number[0]
        version = store.transitions.take("version", unrolled.number)
        known = np.where(unrolled.is_step & (version >= 0), version, np.iinfo(np.int64).max).min(axis=0)
        oldest = np.where(known == np.iinfo(np.int64).max, -1, known)
        info = SampleInfo(
            slots=starts % store.transitions.size,
            generation=starts,
            probability=probability,
            version=oldest,
            age_steps=self.alive.stop - 1 - starts,
        )
        return store.gather_trajectories(unrolled, info, burn_in=burn_in, pin_memory=self.pin_memory)
