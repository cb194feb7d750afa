"""Limits of a run as its learner sees them, and the share of time in which the learner waits for experience."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from surreal.base.metrics import RateMeter
from surreal.config import Config


class LearnerLimits:
    """The bounds of a run, as its learner sees them.

    Args:
        is_timed: whether `run.max_time_s` counts here. Under a launcher the clock is the launcher's: it began earlier,
            and survives this process.
    """

    def __init__(self, config: Config, *, is_timed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_updates = config.learner.max_updates
        self._max_env_steps = config.run.max_env_steps
        self._max_time_s = config.run.max_time_s if is_timed else None
        self._clock = clock
        self._started_s = clock()

    def updates_reason(self, updates: int) -> str:
        """Reason why the learner is done, "" if it is not."""
        if self._max_updates is None or updates < self._max_updates:
            return ""
        return f"max_updates: {updates} updates were done"

    def run_reason(self, env_steps: int) -> str:
        """Reason why the run is over, "" if it is not."""
        if self._max_env_steps is not None and env_steps >= self._max_env_steps:
            return f"max_env_steps: {env_steps} env steps were done"
        seconds = self._clock() - self._started_s
        if self._max_time_s is not None and seconds >= self._max_time_s:
            return f"max_time_s: {seconds:.0f} s have passed"
        return ""


T = TypeVar("T")

#: Window of the shares of time, s: a few rounds of the limiter, and short enough to act on.
WINDOW_S = 10.0


class ExperienceWaits:
    """Counts how long a learner waits for experience, from its first update on: a replay that fills is not a want.

    Args:
        is_starved: whether what is waited for has to come from the agents.
    """

    def __init__(self, is_starved: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_starved = is_starved
        self._clock = clock
        self._meter: RateMeter | None = None

    def take(self, dequeue: Callable[[float], T | None], timeout_s: float) -> T | None:
        """Take what comes next; None if nothing came in time."""
        is_starved, began_s = self._is_starved(), self._clock()
        taken = dequeue(timeout_s)
        if self._meter is None:
            if taken is not None:
                self._meter = RateMeter("learner/waiting_ratio", window_s=WINDOW_S, clock=self._clock)
        elif is_starved:
            self._meter.add(self._clock() - began_s)
        return taken

    def metrics(self) -> dict[str, float]:
        """Metrics: total wait and its share of the last seconds; empty before the first update."""
        meter = self._meter
        return {} if meter is None else {"learner/wait_s_total": meter.total, **meter.metrics()}
