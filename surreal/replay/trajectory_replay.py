"""TrajectoryReplay: base of the replays whose batches are trajectories [T, B] instead of transitions [B].

`trajectories.unrolling` describes a batch. Subclasses choose the trajectories: `_sample` returns the sequence numbers
[B] of their first steps.
"""

from __future__ import annotations

from typing import ClassVar

from surreal.base.types import TrajectoryBatch
from surreal.distributed.experience.codec import Contract
from surreal.replay.base import Replay
from surreal.replay.batches import HandsOut, to_trajectory_batch
from surreal.replay.store.rows import Observations
from surreal.replay.trajectories.starts import StartIndex
from surreal.replay.trajectories.unrolling import GatheredTrajectories, TrajectoryStore


class TrajectoryReplay(Replay[TrajectoryBatch]):
    """Base of `FIFOReplay` and `SequenceReplay`; arguments as in `Replay`.

    Attributes:
        trajectory_steps: T of a trajectory, >= 1; a subclass sets it.
        counts_rows: whether T counts rows, ends of episodes included; otherwise, it counts steps.
        indexes_starts: whether the store finds the steps at which a whole trajectory begins.
        start_interval: steps of an episode between those at which a trajectory may begin.
        burn_in: rows at the start that only bring the recurrent state up to date.
    """

    hands_out: ClassVar[HandsOut] = "trajectories"
    trajectory_steps: int
    counts_rows: ClassVar[bool] = False
    indexes_starts: ClassVar[bool] = False
    start_interval: int = 1
    burn_in: int = 0

    @property
    def trajectories(self) -> TrajectoryStore:
        """The store; before the first chunk, it raises `ValueError`."""
        if not isinstance(self.store, TrajectoryStore):
            raise ValueError("nothing was inserted yet")
        return self.store

    @property
    def starts(self) -> StartIndex:
        """The steps at which a whole trajectory begins; raises `ValueError` if nothing was inserted yet."""
        if (starts := self.trajectories.starts) is None:
            raise ValueError(f"{type(self).__name__} does not index starts")
        return starts

    @property
    def makes_own_batches(self) -> bool:
        return type(self).aggregate_batch is not TrajectoryReplay.aggregate_batch

    def aggregate_batch(self, gathered: GatheredTrajectories) -> TrajectoryBatch:
        spec = self.trajectories.contract.stacked_obs
        return to_trajectory_batch(gathered, spec, burn_in=self.burn_in, pin_memory=self.pin_memory)

    def _make_store(self, contract: Contract, observations: Observations) -> TrajectoryStore:
        return TrajectoryStore(
            contract,
            capacity=self.capacity,
            gamma=self.gamma,
            length=self.trajectory_steps,
            counts_rows=self.counts_rows,
            indexes_starts=self.indexes_starts,
            start_interval=self.start_interval,
            observations=observations,
        )
