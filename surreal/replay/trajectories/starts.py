"""The steps of a store at which a whole sequence can begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal.replay.store.rows import Ring, sample_uniform
from surreal.replay.trajectories.lanes import Run

#: How often starts are drawn before all of them are listed.
_MAX_TRIES = 8


class StartIndex:
    """The steps that begin a whole sequence of `length` rows; `size` steps are expected to be alive."""

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        self.count = 0  #: number of starts
        self._ring = Ring({"is_start": ((), np.bool_)}, size)
        # By the last step of each lane: the steps that need further rows, and the number of rows from each to the end.
        self._waiting: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def append(self, steps: int) -> None:
        self._ring.append({"is_start": np.zeros(steps, np.bool_)}, steps)

    def add(self, run: Run, has_ended: NDArray[np.bool_], may_begin: NDArray[np.bool_]) -> None:
        """Take in a run of a chunk, for whose steps there is room.

        Args:
            run: consecutive steps of a lane.
            has_ended: [n] whether an episode ended with the step.
            may_begin: [n] whether a sequence may begin with it, once enough rows follow.
        """
        rows = 1 + has_ended.astype(np.int64)
        behind = np.cumsum(rows)
        numbers = np.arange(run.begin, run.end)[may_begin]
        ahead = (behind[-1] - (behind - rows))[may_begin]
        before = self._waiting.pop(run.previous, None)
        if before is not None:
            numbers = np.concatenate([before[0], numbers])
            ahead = np.concatenate([before[1] + behind[-1], ahead])
        is_whole = ahead >= self.length
        whole = numbers[is_whole]
        whole = whole[whole >= self._ring.tail]
        self._ring.columns["is_start"][whole % self._ring.size] = True
        self.count += len(whole)
        self._waiting[run.end - 1] = numbers[~is_whole], ahead[~is_whole]

    def free_until(self, oldest: int) -> None:
        if oldest <= self._ring.tail:
            return
        gone = np.arange(self._ring.tail, oldest)
        self.count -= int(np.count_nonzero(self._ring.take("is_start", gone)))
        self._ring.free_until(oldest)
        for last in [last for last in self._waiting if last < oldest]:
            del self._waiting[last]

    def are_starts(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these living steps [n] begin a whole sequence."""
        found: NDArray[np.bool_] = self._ring.take("is_start", numbers)
        return found

    def sample(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """That many of the starts, uniformly, with replacement; raises `ValueError` if there is none."""
        if not self.count:
            raise ValueError("no sequence can begin anywhere")
        found = np.empty(0, np.int64)
        for _ in range(_MAX_TRIES):
            tried = sample_uniform(rng, self._ring.tail, self._ring.head, 2 * number)
            found = np.concatenate([found, tried[self._ring.take("is_start", tried)]])
            if len(found) >= number:
                return found[:number]
        alive = np.arange(self._ring.tail, self._ring.head)
        return rng.choice(alive[self._ring.take("is_start", alive)], number)
