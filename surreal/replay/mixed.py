"""On-policy and off-policy parts in one batch, for interpolated policy gradients: of transitions, or of trajectories.

Gu et al. 2017, arXiv:1706.00387: a gradient is nu times an off-policy one (of a critic, over states of a replay) plus
(1 - nu) times an on-policy one. The learner weighs the parts. `batch.extras["is_on_policy"]` marks the on-policy rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import ContractError
from surreal.base.ranges import NonNegative, NonNegativeInt, PositiveInt, Share, checked
from surreal.base.types import Batch, TrajectoryBatch
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.base import Replay
from surreal.replay.sequences import TrajectoryReplay
from surreal.replay.store.rows import sample_uniform
from surreal.replay.store.storage import Gathered
from surreal.replay.stream.conflicts import ReplayPlan
from surreal.replay.trajectories.lanes import Cut, Cutter
from surreal.replay.trajectories.ledger import Handed
from surreal.replay.trajectories.unrolling import GatheredTrajectories

ON_POLICY_COLUMN = "is_on_policy"


class MixedReplay(Replay[Batch]):
    """Samples a part of each batch from the newest steps, the rest uniformly from all.

    The first round(on_policy_fraction * batch_size) rows are the on-policy part: sampled, without replacement, from the
    newest `on_policy_window` transitions, as far as their parameter versions are at most `max_version_lag` behind
    the newest of them. It never waits for further ones: where they are too few, rows repeat, which is counted.

    Args:
        on_policy_fraction: share of the on-policy rows.
        on_policy_window: newest transitions that may be on-policy. Raising it repeats fewer rows, and uses older ones
            if versions are unknown.
        max_version_lag: versions that an on-policy row may be behind. Steps of unknown version (-1) are behind
            all that are known.
    """

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        on_policy_fraction: Share = 0.5,
        on_policy_window: PositiveInt = 4096,
        max_version_lag: NonNegativeInt = 1,
        **options: Any,
    ) -> None:
        super().__init__(client, **options)
        self.on_policy_rows = round(on_policy_fraction * self.batch_size)
        self._window = on_policy_window
        self._max_version_lag = max_version_lag
        self._fresh = np.empty(0, np.int64)  # numbers of the steps that count as on-policy
        self._fresh_of = range(0)  # what was alive when they were found
        self._repeats = 0

    def _insert(self, table: Chunk) -> range:
        _check_columns(table)
        return super()._insert(table)

    def _sample(self, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        alive, number = self.alive, self.on_policy_rows
        numbers = sample_uniform(self.rng, alive.start, alive.stop, batch_size)
        probability = np.full(batch_size, 1.0 / len(alive))
        if number:
            fresh = self._find_fresh()
            self._repeats += max(number - len(fresh), 0)
            numbers[:number] = self.rng.choice(fresh, number, replace=len(fresh) < number)
            probability[:number] = 1.0 / len(fresh)
        return numbers, probability

    def aggregate_batch(self, gathered: Gathered) -> Batch:
        gathered.extras[ON_POLICY_COLUMN] = np.arange(len(gathered.reward)) < self.on_policy_rows
        return super().aggregate_batch(gathered)

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {
            "replay/on_policy_candidates_count": len(self._fresh),
            "replay/on_policy_repeats_total": self._repeats,
        }

    def _find_fresh(self) -> NDArray[np.int64]:
        alive = self.alive
        if alive != self._fresh_of and self.store is not None:
            newest = np.arange(max(alive.stop - self._window, alive.start), alive.stop)
            version = self.store.transitions.take("version", newest)
            self._fresh = newest[version >= version.max() - self._max_version_lag]
            self._fresh_of = alive
        return self._fresh


class MixedTrajectoryReplay(TrajectoryReplay):
    """Returns fresh trajectories, each once, together with others sampled uniformly from all steps.

    A batch waits for its on-policy part, which sets the pace of learning: its first `batch_size` trajectories are the
    oldest that are complete and were not handed out. They stay among those that the rest is sampled from. There is no
    limiter: agents that must not run ahead wait for parameters (`agent.round_steps`).

    Args:
        batch_size: fresh trajectories of a batch.
        trajectory_steps: T, steps of a trajectory; each end of an episode inside takes a further row.
        replay_ratio: replayed trajectories for each fresh one; raising it learns more off-policy from each step.
        max_version_lag: a trajectory is not on-policy any more (and counted) when the newest parameter version is ahead
            of one that acted in it by more than this; None: never.
        in_rounds: whether agents act in rounds, as in `FIFOReplay`.
        start_size: transitions that must be there before the first batch.
        prefetch: batches gathered ahead; raising it replays older trajectories, and delays fresh ones.
        options: arguments of `Replay`, without `n_step` and `samples_per_insert`.
    """

    hands_out = "mixed"
    indexes_starts = True

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        batch_size: PositiveInt = 16,
        trajectory_steps: PositiveInt = 16,
        replay_ratio: NonNegative = 1.0,
        max_version_lag: NonNegativeInt | None = 4,
        in_rounds: bool = False,
        start_size: PositiveInt = 1,
        prefetch: PositiveInt | None = 1,
        **options: Any,
    ) -> None:
        for name, value, reason in _refused(options):
            raise ValueError(f"{name} is {value}, but {reason}")
        self.fresh_columns = self.drawn_once = batch_size
        columns = batch_size + round(replay_ratio * batch_size)
        super().__init__(client, batch_size=columns, start_size=start_size, prefetch=prefetch, **options)
        if batch_size * trajectory_steps > self.capacity:
            raise ValueError(
                f"batch_size is {batch_size}, but {trajectory_steps} steps of each fresh trajectory must fit into "
                f"capacity, {self.capacity}; lower it or raise capacity"
            )
        self.trajectory_steps = trajectory_steps
        self._cutter = Cutter(trajectory_steps, in_rounds=in_rounds)
        self._least_steps = trajectory_steps if in_rounds else 1
        self._fresh: deque[Cut] = deque()
        self._progress = Handed()
        self._made: deque[dict[str, int]] = deque()  # `learned` of each batch that is not dequeued yet
        self._max_version_lag = max_version_lag
        self._version = self._told_version = -1  # the second is written by the learner's thread
        self._stale = 0

    @classmethod
    def conflicts(cls, plan: ReplayPlan) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(plan)
        for name, value, reason in _refused(plan.arguments):
            section = "learner" if name == "n_step" else "replay"
            yield f"{section}.{name}", f"is {value}, but {reason}: leave it out"

    def dequeue(self, timeout_s: float) -> TrajectoryBatch | None:
        batch = super().dequeue(timeout_s)
        if batch is not None:
            self.learned = self._made.popleft()
        return batch

    def commit(self, version: int | None = None) -> None:
        """Take note of the version of the newest parameters; never waits."""
        if version is not None:
            self._told_version = version

    def start_sample_condition(self) -> bool:
        """Whether there are enough fresh trajectories, and `start_size` transitions to sample others from."""
        if not super().start_sample_condition():
            return False
        asked = self._asked_starts()
        self._drop_stale(asked)
        starts = self._free_starts(asked)
        if len(starts) < self.fresh_columns or not self.starts.count:
            return False
        return int(np.count_nonzero(self._are_present(starts))) >= self.fresh_columns

    def _insert(self, table: Chunk) -> range:
        _check_columns(table)
        store = self.trajectories
        numbers = super()._insert(table)
        self._progress.note(table.chunk_id)
        version = table.columns["version"][table.own]
        if self._told_version < 0:  # what the learner publishes is true; experience is believed only until then
            self._version = max(self._version, int(version.max(initial=-1)))
        for run in store.runs:
            part = slice(run.begin - numbers.start, run.end - numbers.start)
            cuts = self._cutter.add(run, version[part])
            self._fresh += [cut._replace(chunk_id=table.chunk_id) for cut in cuts]
        return numbers

    def _sample(self, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the first steps [B] of trajectories; the on-policy ones come first, and are used only once."""
        starts = self._free_starts(self._asked_starts())
        first = np.sort(np.argsort(~self._are_present(starts), kind="stable")[: self.fresh_columns])
        fresh, probability = starts[first], np.ones(batch_size)
        probability[len(fresh) :] = 1.0 / self.starts.count
        return np.concatenate([fresh, self.starts.sample(batch_size - len(fresh), self.rng)]), probability

    def aggregate_batch(self, gathered: GatheredTrajectories) -> TrajectoryBatch:
        taken = set(gathered.number[0, : self.fresh_columns].tolist())
        self._fresh = deque(cut for cut in self._fresh if cut.start not in taken)
        is_on_policy = np.zeros(gathered.is_step.shape, np.bool_)
        is_on_policy[:, : self.fresh_columns] = True
        is_enough = len(self._fresh) >= self.fresh_columns
        self._made.append(self._progress.through(cut.chunk_id for cut in self._fresh if is_enough))
        gathered.extras[ON_POLICY_COLUMN] = is_on_policy
        return super().aggregate_batch(gathered)

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {
            "replay/ready_trajectories_count": len(self._fresh),
            "replay/stale_trajectories_total": self._stale,
        }

    def _asked_starts(self) -> set[int]:
        """Get the first steps of the fresh trajectories whose observations are on their way."""
        asked = [request.gathered.number[0, : self.fresh_columns] for request in self.state.asked]
        return {start for starts in asked for start in starts.tolist()}

    def _free_starts(self, asked: set[int]) -> NDArray[np.int64]:
        """Get the first steps of the fresh trajectories that can be sampled, oldest first."""
        return np.array([cut.start for cut in self._fresh if cut.start not in asked], np.int64)

    def _are_present(self, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the trajectories whose observations can be fetched: those on a server that is away have to wait."""
        store = self.trajectories
        return ~store.are_gone(starts) if store.observations.has_gone else np.ones(len(starts), np.bool_)

    def _drop_stale(self, asked: set[int]) -> None:
        """Drop fresh trajectories that are no longer on-policy, or were evicted before they were sampled."""
        first_alive = self.alive.start
        newest, count = self._told_version if self._told_version >= 0 else self._version, len(self._fresh)
        oldest = -1 if self._max_version_lag is None else newest - self._max_version_lag
        self._fresh = deque(
            cut
            for cut in self._fresh
            if cut.start in asked
            or (
                cut.start >= first_alive
                and cut.steps >= self._least_steps
                and (cut.oldest_version < 0 or cut.oldest_version >= oldest)
            )
        )
        self._stale += count - len(self._fresh)


def _check_columns(table: Chunk) -> None:
    if ON_POLICY_COLUMN in table.extras:
        raise ContractError(f"agents send a column named {ON_POLICY_COLUMN!r}, a name that this replay uses itself")


def _refused(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Find settings that a replay of fresh trajectories does not support: name, value and reason."""
    if arguments.get("n_step", 1) != 1:
        yield "n_step", arguments["n_step"], "trajectories hold single steps"
    if arguments.get("samples_per_insert") is not None:
        why = "a batch waits for fresh trajectories: it and a limiter would wait for each other"
        yield "samples_per_insert", arguments["samples_per_insert"], why
