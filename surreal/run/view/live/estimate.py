"""When a run will end: how far it is to each of its limits, and to its goal where that can be said.

A limit is reached at the pace of the last half minute. A curve of returns follows no law: the time to the goal is given
only where the last rounds rise beyond doubt, and only if it is no longer than half of what those rounds look back on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

from surreal.base.values import LARGEST
from surreal.config import Config
from surreal.run.view.live.history import History, Round
from surreal.run.view.live.snapshot import Snapshot

_MIN_ROUNDS = 5
#: How many of its standard errors a slope must be above zero.
_SURE = 3.0
#: How far ahead a trend is trusted, as a share of what it looks back on.
_FAR = 0.5


class RunLimits(NamedTuple):
    """What ends a run; None: nothing of this kind does."""

    max_env_steps: int | None = None
    max_updates: int | None = None
    max_time_s: float | None = None
    stop_at_return: float | None = None

    @classmethod
    def of(cls, config: Config) -> Self:
        """Those of a configuration."""
        run = config.run
        return cls(run.max_env_steps, config.learner.max_updates, run.max_time_s, run.stop_at_return)


class Bound(NamedTuple):
    """One of a run's limits, and how far it is."""

    name: str  #: env steps, updates, time, or eval return
    done: float
    total: float
    left_s: float | None  #: None: nobody can say
    start: float = 0.0  #: where it began

    @property
    def share(self) -> float:
        """How much of it is done, 0..1; NaN where that is no number."""
        way = self.total - self.start
        return min(max((self.done - self.start) / way, 0.0), 1.0) if way > 0 else math.nan


def nearest_bound(limits: RunLimits, snapshot: Snapshot, history: History, elapsed_s: float) -> Bound | None:
    """Find the limit that ends the run first; of limits without a known time, the one that is done most.

    The goal counts only in a run without limits, so that the measure does not change with the curve.

    Args:
        limits: of the run.
        snapshot: the newest one.
        history: before it.
        elapsed_s: since the run's start.

    Returns:
        None if the run has no limit, or only a goal and no score.
    """
    bounds = []
    if (steps := limits.max_env_steps) is not None:
        bounds.append(_paced("env steps", snapshot.env_steps, steps, history.steps_per_s))
    if (updates := limits.max_updates) is not None:
        bounds.append(_paced("updates", snapshot.updates, updates, history.updates_per_s))
    if (time_s := limits.max_time_s) is not None:
        bounds.append(_paced("time", elapsed_s, time_s, 1.0))
    if (goal := limits.stop_at_return) is not None and history.rounds and not bounds:
        first, last = history.eval_returns.points[0], history.rounds[-1].mean_return
        bounds.append(Bound("eval return", last, goal, seconds_to_goal(tuple(history.rounds), goal), first))
    return min(bounds, key=_order, default=None)


def seconds_to_goal(rounds: Sequence[Round], goal: float) -> float | None:
    """How long the last rounds' trend takes to the goal, s; None if there is no trend to trust.

    The trend is a line through them by least squares.
    """
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


def _paced(name: str, done: float, total: float, per_s: float) -> Bound:
    return Bound(name, done, total, max(total - done, 0.0) / per_s if per_s > 0 else None)


def _order(bound: Bound) -> tuple[float, float]:
    return (math.inf if bound.left_s is None else bound.left_s, -bound.share)
