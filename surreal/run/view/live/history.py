"""What was seen of a run since somebody began to look: the curves of its returns, its pace, and restarts.

A snapshot says how a run is now; whoever shows one adds it here, and finds what came before. Bounded, however long.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from surreal.run.view.live.snapshot import Snapshot

_MAX_POINTS = 512
#: Between two points of the curve of training, s: as often as agents report.
_INTERVAL_S = 1.0
#: What a pace is the mean of, s.
_PACE_WINDOW_S = 30.0
_RECENT_ROUNDS = 10


class Curve:
    """Values in the order in which they came; when there are too many, each two neighbours become their mean.

    Args:
        max_points: even; raising it keeps more detail of what is long ago.
    """

    def __init__(self, max_points: int = _MAX_POINTS) -> None:
        self._max_points = max_points
        self._points: list[float] = []
        self._group: list[float] = []
        self._group_size = 1

    def add(self, value: float) -> None:
        """Add a value; NaN is a gap."""
        self._group.append(value)
        if len(self._group) < self._group_size:
            return
        self._points.append(mean(self._group))
        self._group.clear()
        if len(self._points) >= self._max_points:
            self._points = [mean(pair) for pair in zip(self._points[::2], self._points[1::2], strict=True)]
            self._group_size *= 2

    @property
    def points(self) -> tuple[float, ...]:
        """All of it, the newest last."""
        return (*self._points, *([mean(self._group)] if self._group else ()))


class Round(NamedTuple):
    """A round of evaluation."""

    time_s: float
    mean_return: float


class History:
    """Adds up what snapshots say.

    Attributes:
        returns: of training.
        eval_returns: a point for each round of evaluation that was seen.
        rounds: the newest of these rounds.
    """

    def __init__(self) -> None:
        self.returns = Curve()
        self.eval_returns = Curve()
        self.rounds: deque[Round] = deque(maxlen=_RECENT_ROUNDS)
        self._number_of_rounds = 0
        self._paces: deque[tuple[float, float, float]] = deque()
        self._return_s = -math.inf
        self._lives: dict[str, set[str]] = {}

    def add(self, snapshot: Snapshot, now_s: float) -> None:
        """Add what was seen now.

        Args:
            snapshot: the newest one.
            now_s: monotonic.
        """
        for name, life in snapshot.lives:
            self._lives.setdefault(name, set()).add(life)
        if snapshot.episode_return is not None and now_s - self._return_s >= _INTERVAL_S:
            self._return_s = now_s
            self.returns.add(snapshot.episode_return)
        if snapshot.eval_return is not None and snapshot.eval_rounds not in (0, self._number_of_rounds):
            self.add_round(snapshot.eval_return, snapshot.eval_rounds, now_s)
        if snapshot.updates:  # a start has another pace
            self._paces.append((now_s, snapshot.steps_per_s, snapshot.updates_per_s))
        while self._paces and now_s - self._paces[0][0] > _PACE_WINDOW_S:
            self._paces.popleft()

    def add_round(self, mean_return: float, number: int, time_s: float) -> None:
        """Add a round of evaluation.

        Args:
            mean_return: its mean; NaN if it has none.
            number: how many rounds there are with it.
            time_s: when it was played, by the clock of `add`.
        """
        self._number_of_rounds = number
        self.eval_returns.add(mean_return)
        self.rounds.append(Round(time_s, mean_return))

    @property
    def steps_per_s(self) -> float:
        """Env steps per second, over the last half minute; NaN before the first update."""
        return mean(steps for _, steps, _ in self._paces)

    @property
    def updates_per_s(self) -> float:
        """Updates per second, over the last half minute; NaN before the first one."""
        return mean(updates for _, _, updates in self._paces)

    @property
    def restarts(self) -> dict[str, int]:
        """How often processes have begun again, by their names, as far as was seen; without those that never did."""
        return {name: len(lives) - 1 for name, lives in self._lives.items() if len(lives) > 1}


def mean(values: Iterable[float]) -> float:
    """Mean of those that are finite; NaN if none is."""
    finite = [value for value in values if math.isfinite(value)]
    # Divided first: the sum of the largest numbers is none.
    return math.fsum(value / len(finite) for value in finite) if finite else math.nan
