"""Development of a run while it is watched: curves of its returns, its pace, its restarts, and its expected end.

A limit is reached at the pace of the last half minute. Returns follow no law, so the time to the goal is estimated only
if the last rounds clearly rise, and only up to half of the time that these rounds cover. Memory is bounded.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from surreal.base.values import LARGEST
from surreal.config import Config
from surreal.run.view.run_view import RunView

_MAX_POINTS = 512
#: Between two points of the curve of training returns, s: as often as agents report.
_INTERVAL_S = 1.0
#: Time over which a pace is averaged, s.
_PACE_WINDOW_S = 30.0
_RECENT_ROUNDS = 10
_MIN_ROUNDS = 5
#: How many of its standard errors a slope must be above zero.
_SURE = 3.0
#: How far ahead a trend is trusted, as a share of the time it covers.
_FAR = 0.5


class Curve:
    """Values in order; when there are `max_points`, an even number, each two neighbors become their mean."""

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
        return (*self._points, *([mean(self._group)] if self._group else ()))


class TimedReturn(NamedTuple):
    """Time and mean return of an evaluation round."""

    time_s: float
    mean_return: float


class Trend:
    """Adds up the views of a run."""

    def __init__(self) -> None:
        self.returns = Curve()  #: returns of training
        self.eval_returns = Curve()  #: a point for each evaluation round that was seen
        self.rounds: deque[TimedReturn] = deque(maxlen=_RECENT_ROUNDS)  #: the newest of these rounds
        self._number_of_rounds = 0
        self._paces: deque[tuple[float, float, float]] = deque()
        self._return_s = -math.inf
        self._lives: dict[str, set[str]] = {}

    def add(self, view: RunView, now_s: float) -> None:
        for name, life in view.lives:
            self._lives.setdefault(name, set()).add(life)
        if view.episode_return is not None and now_s - self._return_s >= _INTERVAL_S:
            self._return_s = now_s
            self.returns.add(view.episode_return)
        if view.eval_return is not None and view.eval_rounds not in (0, self._number_of_rounds):
            self.add_round(view.eval_return, view.eval_rounds, now_s)
        if view.updates:  # a start has another pace
            self._paces.append((now_s, view.steps_per_s, view.updates_per_s))
        while self._paces and now_s - self._paces[0][0] > _PACE_WINDOW_S:
            self._paces.popleft()

    def add_round(self, mean_return: float, number: int, time_s: float) -> None:
        """Add an evaluation round, the last of `number`, played at `time_s` by the clock of `add`; NaN: no return."""
        self._number_of_rounds = number
        self.eval_returns.add(mean_return)
        self.rounds.append(TimedReturn(time_s, mean_return))

    @property
    def steps_per_s(self) -> float:
        """Env steps per second over the last half minute; NaN before the first update."""
        return mean(steps for _, steps, _ in self._paces)

    @property
    def updates_per_s(self) -> float:
        """Updates per second over the last half minute; NaN before the first update."""
        return mean(updates for _, _, updates in self._paces)

    @property
    def restarts(self) -> dict[str, int]:
        """Restarts that were seen, by process name; without processes that never restarted."""
        return {name: len(lives) - 1 for name, lives in self._lives.items() if len(lives) > 1}


class RunLimits(NamedTuple):
    """Limits that end a run; None: there is no such limit."""

    max_env_steps: int | None = None
    max_updates: int | None = None
    max_time_s: float | None = None
    stop_at_return: float | None = None

    @classmethod
    def of(cls, config: Config) -> Self:
        run = config.run
        return cls(run.max_env_steps, config.learner.max_updates, run.max_time_s, run.stop_at_return)


class Bound(NamedTuple):
    """Progress toward one limit."""

    name: str  #: env steps, updates, time, or eval return
    done: float
    total: float
    left_s: float | None  #: None: unknown
    start: float = 0.0  #: value at the run's start

    @property
    def share(self) -> float:
        """Share that is done, 0..1; NaN if undefined."""
        way = self.total - self.start
        return min(max((self.done - self.start) / way, 0.0), 1.0) if way > 0 else math.nan


def nearest_bound(limits: RunLimits, view: RunView, trend: Trend, elapsed_s: float) -> Bound | None:
    """Find the limit that ends the run first; without known times, the one with the largest completed share. None
    if there is none, or only a goal and no score.

    The goal counts only in a run without limits, so that the displayed limit does not change with the curve.
    """
    bounds = []
    if (steps := limits.max_env_steps) is not None:
        bounds.append(_paced("env steps", view.env_steps, steps, trend.steps_per_s))
    if (updates := limits.max_updates) is not None:
        bounds.append(_paced("updates", view.updates, updates, trend.updates_per_s))
    if (time_s := limits.max_time_s) is not None:
        bounds.append(_paced("time", elapsed_s, time_s, 1.0))
    if (goal := limits.stop_at_return) is not None and trend.rounds and not bounds:
        first, last = trend.eval_returns.points[0], trend.rounds[-1].mean_return
        bounds.append(Bound("eval return", last, goal, seconds_to_goal(tuple(trend.rounds), goal), first))
    return min(bounds, key=lambda b: (math.inf if b.left_s is None else b.left_s, -b.share), default=None)


def seconds_to_goal(rounds: Sequence[TimedReturn], goal: float) -> float | None:
    """Estimate the time to the goal from a least-squares line, s; None if the rounds show no clear trend."""
    known = [(each.time_s, each.mean_return) for each in rounds if abs(each.mean_return) <= LARGEST]
    count = len(known)
    if count < _MIN_ROUNDS:
        return None
    mean_time, mean_return = (math.fsum(values) / count for values in zip(*known, strict=True))
    spread = math.fsum((time_s - mean_time) ** 2 for time_s, _ in known)
    if spread <= 0:
        return None
    slope = math.fsum((time_s - mean_time) * (value - mean_return) for time_s, value in known) / spread
    errors = math.fsum((value - mean_return - slope * (time_s - mean_time)) ** 2 for time_s, value in known)
    standard_error = math.sqrt(errors / (count - 2) / spread)
    now_s, span_s = known[-1][0], known[-1][0] - known[0][0]
    if slope <= _SURE * standard_error:
        return None
    left_s = (goal - mean_return) / slope - (now_s - mean_time)
    return left_s if 0 < left_s <= _FAR * span_s else None


def mean(values: Iterable[float]) -> float:
    """Mean of the finite values; NaN if there are none."""
    finite = [value for value in values if math.isfinite(value)]
    # Divided first: the sum of the largest numbers overflows.
    return math.fsum(value / len(finite) for value in finite) if finite else math.nan


def _paced(name: str, done: float, total: float, per_s: float) -> Bound:
    return Bound(name, done, total, max(total - done, 0.0) / per_s if per_s > 0 else None)
