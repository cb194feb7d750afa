"""TrajectoryReplay, base of the replays whose batches are trajectories [T, B] instead of transitions; and sequences.

`trajectories.unrolling` describes a batch. Subclasses choose the trajectories: `_sample` returns the sequence numbers
[B] of their first steps.

SequenceReplay, PrioritizedSequenceReplay: sequences of fixed length for recurrent networks, as in R2D2. A sequence is a
trajectory that may begin at any step, or at every n-th of an episode. The recurrent state that the agent recorded there
comes with it, and its first rows may only serve to bring that state up to date (burn-in). It continues across the end
of an episode, marked by `is_first` and the row of the final observation. See Kapturowski et al. 2019,
openreview.net/forum?id=r1lyTjAqYX.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surreal.base.ranges import NonNegativeInt, PositiveInt, checked
from surreal.base.types import TrajectoryBatch
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.base import Replay
from surreal.replay.batches import HandsOut, to_trajectory_batch
from surreal.replay.prioritized import Prioritized
from surreal.replay.store.rows import Observations
from surreal.replay.stream.conflicts import ReplayPlan, single_step_conflicts
from surreal.replay.trajectories.lanes import StartIndex
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


#: How often sequences are drawn before all starts are listed.
_MAX_TRIES = 8
_LENGTH, _BURN_IN = 80, 40


class SequenceReplay(TrajectoryReplay):
    """Uniform over the steps after which a whole sequence was seen; with replacement.

    A step too few rows before its lane's newest one, or before a gap in its lane, begins no sequence, but is in those
    that begin before it.

    Args:
        sequence_length: L, rows of a sequence, burn-in included.
        burn_in: rows at the start that the learner must not learn from, 0 .. L - 1; more of them correct older recorded
            states.
        start_interval: steps of an episode between those at which a sequence may begin, >= 1; agents send the recurrent
            states of these only. Raising it takes less memory and bandwidth, and leaves fewer different sequences.
        options: arguments of `Replay`, without `n_step`. `batch_size` counts sequences, and `samples_per_insert` counts
            (L - burn_in) transitions for each of them. `start_size` counts transitions.
    """

    hands_out = "sequences"
    counts_rows = True
    indexes_starts = True

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        sequence_length: PositiveInt = _LENGTH,
        burn_in: NonNegativeInt = _BURN_IN,
        start_interval: PositiveInt = 1,
        **options: Any,
    ) -> None:
        if burn_in >= sequence_length:
            raise ValueError(
                f"sequence_length is {sequence_length} and burn_in {burn_in}; they must be >= 1 and 0 .. length - 1"
            )
        if options.pop("n_step", 1) != 1:
            raise ValueError("sequences hold single steps: n_step must be 1, n-step targets are the learner's")
        self.steps_per_sample = sequence_length - burn_in
        super().__init__(client, **options)
        self.trajectory_steps = sequence_length
        self.burn_in, self.start_interval = burn_in, start_interval

    @classmethod
    def count_steps_per_sample(cls, *, sequence_length: int = _LENGTH, burn_in: int = _BURN_IN, **_: Any) -> int:
        return sequence_length - burn_in

    @classmethod
    def conflicts(cls, plan: ReplayPlan) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(plan)
        reason = "sequences hold single steps, and n-step targets are the learner's: leave it out"
        yield from single_step_conflicts(plan, reason)

    @property
    def sequence_length(self) -> int:
        return self.trajectory_steps

    def start_sample_condition(self) -> bool:
        """Whether there are `start_size` transitions, and a sequence can begin somewhere."""
        return super().start_sample_condition() and self.starts.count > 0

    def _sample(self, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return self.starts.sample(batch_size, self.rng), np.full(batch_size, 1.0 / self.starts.count)

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {"replay/sequence_starts_count": self.starts.count if self.store is not None else 0}


class PrioritizedSequenceReplay(Prioritized[TrajectoryBatch], SequenceReplay):
    """Draws the sequences that surprised the learner more often; new ones have the largest priority so far.

    `R2D2Learner` gives eta * max + (1 - eta) * mean of |TD error| over a sequence as its priority, and multiplies the
    loss by `batch.extras["weight"]` [B]. The paper's `priority_exponent` is 0.9, its `importance_exponent` 0.6, always.

    Args:
        options: arguments of `Prioritized` and `SequenceReplay`.
    """

    def _initial_leaves(self, table: Chunk, number: int) -> NDArray[np.float64]:
        leaves = super()._initial_leaves(table, number)
        return np.where(table.step[table.own] % self.start_interval == 0, leaves, 0.0)

    def _draw(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draw starts. The tree has a leaf for each step, but the newest steps of a lane begin no sequence yet."""
        if not self.starts.count:
            raise ValueError("no sequence can begin anywhere")
        found, probability = super()._draw(number)
        missing = np.flatnonzero(~self.starts.are_starts(found))
        for _ in range(_MAX_TRIES):
            if not len(missing):
                return found, probability
            others, theirs = super()._draw(number)
            usable = self.rng.permutation(np.flatnonzero(self.starts.are_starts(others)))[: len(missing)]
            found[missing[: len(usable)]] = others[usable]
            probability[missing[: len(usable)]] = theirs[usable]
            missing = missing[len(usable) :]
        alive = np.arange(self.alive.start, self.alive.stop)
        starts = alive[self.starts.are_starts(alive)]
        chances = self._tree.leaves[starts % self._tree.capacity] / self._tree.total
        chosen = self.rng.choice(len(starts), len(missing), p=chances / chances.sum())
        found[missing], probability[missing] = starts[chosen], chances[chosen]
        return found, probability
