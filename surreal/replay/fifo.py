"""FIFOReplay: on-policy trajectories, which return each step once, in order.

The stream is of mode `consume`: nothing leaves Redis before it was consumed and committed. The learner's loop:

    replay.start_threads()
    for i, batch in replay.batch_iterator():
        learner.optimize(i, batch)
        broadcaster.broadcast(model)
        replay.commit(broadcaster.version)

`commit` records that parameters learned from all batches handed out so far were broadcast. The steps of these batches
are then removed from Redis. If a learner dies, the next one reads again what was not committed, and nothing else: the
stream records which steps of a chunk were consumed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.ranges import NonNegativeInt, Positive, PositiveInt, Share, checked
from surreal.base.types import TrajectoryBatch
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.sequences import TrajectoryReplay
from surreal.replay.trajectories.lanes import Cut, Cutter
from surreal.replay.trajectories.ledger import Fullness, Handed, Ledger, from_mark
from surreal.replay.trajectories.unrolling import GatheredTrajectories


class _Used(NamedTuple):
    """A batch that was made and not committed."""

    serial: int
    numbers: list[NDArray[np.int64]]  #: numbers of its steps, and of steps dropped after it


class FIFOReplay(TrajectoryReplay):
    """On-policy trajectories of fixed length, in the order in which they were completed.

    Args:
        batch_size: trajectories of a batch.
        trajectory_steps: T, steps of a trajectory. Each end of an episode in it takes another row, so a batch has
            T rows and as many more as the trajectory with the most ends needs. Raising it bootstraps later, and makes
            steps older when they are used.
        gamma: discount factor of one step.
        max_version_lag: a trajectory is dropped (and counted) when the newest parameter version is ahead of one that
            acted in it by more than this; None keeps all. One batch is made ahead, so the lag at the learner can
            be one broadcast more.
        in_rounds: whether agents act with one version for T steps of each environment (`agent.round_steps`). If a lane
            breaks off or loses a part, its open trajectory is dropped (and counted), and the next one begins with the
            next version.
        piece_timeout_s: time without news from a lane after which its open trajectory is filled and used, s; None waits
            forever, also for agents that are gone.
        max_bytes: bytes kept in Redis; when they are used up, agents wait. None: as many as fit under Redis' memory
            limit.
        pin_memory: whether to make batches in page-locked memory, for a learner on a GPU.
        lease_s: time after which another replay may own the stream, if this one is silent, s.
        shards: numbers of the shards to follow; None: all. Several learners can split them, so that each step is
            learned from once.
    """

    stream_mode = "consume"
    steps_per_sample = 0  # `aggregate_batch` counts them: not every row is a step

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        batch_size: PositiveInt = 16,
        trajectory_steps: PositiveInt = 128,
        gamma: Share = 0.99,
        max_version_lag: NonNegativeInt | None = None,
        in_rounds: bool = False,
        piece_timeout_s: Positive | None = 60.0,
        max_bytes: PositiveInt | None = None,
        pin_memory: bool = False,
        lease_s: Positive = 5.0,
        shards: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            client,
            batch_size=batch_size,
            capacity=4 * batch_size * trajectory_steps,  # a first size of the store, no bound
            max_bytes=max_bytes,
            start_size=1,
            gamma=gamma,
            prefetch=1,
            observations="mirrored",
            pin_memory=pin_memory,
            lease_s=lease_s,
            seed=0,  # it draws nothing
            shards=shards,
        )
        self.state.open_shards.clear()  # until `_read_marks`
        self.trajectory_steps = trajectory_steps
        self.max_version_lag = max_version_lag
        self._piece_timeout_s = piece_timeout_s
        self._in_rounds = in_rounds
        self._cutter, self._progress = Cutter(trajectory_steps, in_rounds=in_rounds), Handed()
        self._handing: deque[dict[str, int]] = deque()  # `learned` of each batch that is not dequeued yet
        self._ledger = Ledger()
        self._marks: dict[int, dict[bytes, bytes]] = {}  # what was consumed before this replay began, by shard
        self._arrived: deque[NDArray[np.bool_]] = deque()  # of each chunk just inserted: which steps were consumed
        self._new_cuts: list[Cut] = []
        self._ready: deque[Cut] = deque()
        self._used: deque[_Used] = deque()
        self._version = -1
        self._fullness = Fullness()
        self._made = self._stale = self._filled = 0
        # Written by the learner's thread.
        self._handed = self._committed = 0
        self._told_version = -1

    # -- what the learner calls ------------------------------------------------------------------------------------

    def dequeue(self, timeout_s: float) -> TrajectoryBatch | None:
        batch = super().dequeue(timeout_s)
        if batch is not None:
            self._handed += 1
            self.learned = self._handing.popleft()
        return batch

    def commit(self, version: int | None = None) -> None:
        """Drop all steps returned so far, because parameters learned from them were broadcast. Never waits.

        Args:
            version: version of these parameters; None: the newest version is known only from the agents' steps.
        """
        if version is not None:
            self._told_version = version
        self._committed = self._handed
        self.state.wake.set()

    def join(self, timeout_s: float = 5.0) -> bool:
        """Remove committed chunks, and then wait for the threads, as `Replay.join` does."""
        if self.supervisor.join(timeout_s) and self.store is not None:
            self._settle()
        return super().join(timeout_s)

    def step(self, timeout_s: float = 0.05) -> bool:
        self.owner.claim()
        self._read_marks()
        if self.store is not None:
            self._settle()
            if self._piece_timeout_s is not None:
                self._break_off(time.monotonic() - self._piece_timeout_s)
            self._look_after_fullness()
        return super().step(timeout_s)

    def metrics(self) -> dict[str, float]:
        return super().metrics() | {
            "replay/ready_trajectories_count": len(self._ready),
            "replay/open_trajectories_count": len(self._cutter),
            "replay/stale_trajectories_total": self._stale,
            "replay/filled_trajectories_total": self._filled,
            "replay/uncommitted_batches_count": len(self._used),
        }

    # -- hooks: on the replay's thread -------------------------------------------------------------------------------

    def start_sample_condition(self) -> bool:
        return len(self._ready) >= self.batch_size

    def _insert(self, table: Chunk) -> range:
        store = self.trajectories
        is_repeated = store.lanes.is_repeated(table.chunk_id)
        numbers = super()._insert(table)
        self._progress.note(table.chunk_id)
        if is_repeated:  # the first copy is, or was, here
            self._arrived.append(np.ones(len(numbers), np.bool_))
            return numbers
        is_consumed = from_mark(self._marks[table.shard].pop(table.entry_id, None), len(numbers))
        self._arrived.append(is_consumed)
        version = table.columns["version"][table.own].astype(np.int64)
        if self._told_version < 0:
            self._version = max(self._version, int(version.max(initial=-1)))
        now_s = time.monotonic()
        for run in store.runs:
            offset = run.begin - numbers.start
            already = is_consumed[offset : run.end - numbers.start]
            if already[0]:
                # Lanes are consumed in order, so what was is the beginning.
                skipped = len(already) if already.all() else int(already.argmin())
                run, offset = run._replace(begin=run.begin + skipped, previous=-1), offset + skipped
                if run.begin == run.end:
                    continue
            part = slice(offset, run.end - numbers.start)
            cuts = self._cutter.add(run, version[part], now_s=now_s)
            self._new_cuts += [cut._replace(chunk_id=table.chunk_id) for cut in cuts]
        return numbers

    def _evict(self) -> int:
        """Drop no chunk by its age; instead, drop the chunks that were consumed, wherever they stand."""
        while self.chunks:
            self._ledger.add(self.chunks.popleft(), self._arrived.popleft())
        self._settle()
        return 0

    def _sample(self, batch_size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """First steps [B] of the trajectories that come next; they are not offered again."""
        return np.array([self._ready.popleft().start for _ in range(batch_size)], np.int64), np.ones(batch_size)

    def aggregate_batch(self, gathered: GatheredTrajectories) -> TrajectoryBatch:
        """Make tensors, and record the steps that leave when the batch is committed."""
        self._made += 1
        self.owner.samples += int(np.count_nonzero(gathered.is_step))
        self._used.append(_Used(self._made, [gathered.number[gathered.is_step]]))
        waiting = [cut.chunk_id for cut in self._ready] if self.start_sample_condition() else []
        self._handing.append(self._progress.through(waiting))
        return super().aggregate_batch(gathered)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Drop stale trajectories, apply commits, and free the chunks that are no longer needed."""
        # What the learner publishes is true; experience is believed only until it has published.
        newest = self._told_version if self._told_version >= 0 else self._version
        if newest != self._version or self._new_cuts:
            self._version = newest
            candidates = [*self._ready, *self._new_cuts]
            self._filled += sum(cut.steps < self.trajectory_steps for cut in self._new_cuts)
            self._new_cuts.clear()
            self._ready = deque(cut for cut in candidates if not self._is_useless(cut))
            if len(self._ready) < len(candidates):
                self._drop([cut for cut in candidates if self._is_useless(cut)])
        while self._used and self._used[0].serial <= self._committed:
            self._ledger.consume(np.concatenate(self._used.popleft().numbers))
        settled = self._ledger.settle()
        for chunk in settled.gone:
            self.owner.evict(chunk)
        self.state.evicted_chunks += len(settled.gone)
        for chunk, mark in settled.marks:
            self.owner.mark(chunk, mark)
        last = self._ledger.free()
        if last is not None:
            self.trajectories.evict(last)

    def _is_useless(self, cut: Cut) -> bool:
        """Whether a trajectory is too old; or too short in rounds, where it would shift all later batches."""
        if self._in_rounds and cut.steps < self.trajectory_steps:
            return True
        if self.max_version_lag is None or cut.oldest_version < 0:
            return False
        return self._version - cut.oldest_version > self.max_version_lag

    def _drop(self, cuts: list[Cut]) -> None:
        self._stale += len(cuts)
        starts, steps = np.array([cut.start for cut in cuts]), np.array([cut.steps for cut in cuts])
        unrolled = self.trajectories.unroll(starts, 1, steps)
        numbers = unrolled.number[unrolled.is_step]
        if self._used:  # a lane's steps are consumed in order: after those in use
            self._used[-1].numbers.append(numbers)
        else:
            self._ledger.consume(numbers)

    def _read_marks(self) -> None:
        """Open the shards that this replay owns, once it knows which steps were consumed."""
        for stream in self.streams:
            shard, client = stream.shard, stream.client
            if shard not in self._marks and self.owner.owns(shard) and not client.is_away:
                marks = client.attempt(stream.marks, what="read which steps were consumed")
                if marks is not None:
                    self._marks[shard] = marks
                    self.state.open_shards.add(shard)

    def _break_off(self, before_s: float) -> None:
        for lane, cut in self._cutter.break_off(before_s):
            self.trajectories.lanes.break_off(lane)
            self._new_cuts.append(cut)

    def _look_after_fullness(self) -> None:
        """End open trajectories if agents wait for room; raises `ValueError` if no batch fits into the bytes."""
        is_full = self.owner.is_full and len(self._ready) < self.batch_size and not len(self.fetcher_queue)
        if not self._fullness.lasts(is_full, uncommitted=len(self._used)):
            return
        if not len(self._cutter):
            problem = f"the replay's max_bytes is {self.owner.max_bytes}, which {len(self)} steps fill"
            need = f"a batch takes {self.batch_size} trajectories of {self.trajectory_steps} steps"
            advice = "raise max_bytes (and Redis' maxmemory), or lower batch_size or trajectory_steps"
            raise ValueError(f"{problem}, but {need}: {advice}")
        self._break_off(np.inf)
