"""TrajectoryReplay: base of the replays whose batches are trajectories [T, B] in place of transitions [B].

See `trajectories.unrolling` for what a batch holds. Subclasses say which trajectories come next: `_sample` gives the
sequence numbers [B] of their first steps.
"""

from __future__ import annotations

from typing import ClassVar

from surreal.base.types import TrajectoryBatch
from surreal.distributed.experience.codec import Contract
from surreal.replay.base import Replay
from surreal.replay.engine.batches import HandsOut, TrajectoryMaker
from surreal.replay.store.rows import Observations
from surreal.replay.trajectories.unrolling import TrajectoryStore


class TrajectoryReplay(Replay[TrajectoryBatch]):
    """Base of `FIFOReplay` and `SequenceReplay`; arguments as in `Replay`.

    Attributes:
        trajectory_steps: T of a trajectory, >= 1; a subclass sets it.
        counts_rows: whether T counts rows, ends of episodes included; else it counts steps.
        burn_in: of these at the start, which only bring the recurrent state up to date.
    """

    hands_out: ClassVar[HandsOut] = "trajectories"
    trajectory_steps: int
    counts_rows: ClassVar[bool] = False
    burn_in: int = 0

    @property
    def trajectories(self) -> TrajectoryStore:
        """The store, once there is one.

        Raises:
            ValueError: nothing was inserted yet.
        """
        if not isinstance(self.store, TrajectoryStore):
            raise ValueError("nothing was inserted yet")
        return self.store

    def _make_batches(self, contract: Contract, observations: Observations) -> TrajectoryMaker:
        return TrajectoryMaker(
            contract,
            observations,
            capacity=self.capacity,
            gamma=self.gamma,
            steps=self.trajectory_steps,
            counts_rows=self.counts_rows,
            burn_in=self.burn_in,
            pin_memory=self.pin_memory,
        )
