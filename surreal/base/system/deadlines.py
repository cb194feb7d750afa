"""`Deadlines`: the times at which a loop acts at a fixed rate, and how well it keeps them.

    deadlines = Deadlines(rate_hz=50)
    while True:
        stop.wait(max(0.0, deadlines.left_s()))
        robot.command(action)
        deadlines.advance()
        ...                                       # observe, choose the next action

Used by `surreal.envs.pools.rate_pool` and by RLX clients. Not thread-safe, except for `metrics`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np

from surreal.base.ranges import Positive, PositiveInt, checked


@checked
@dataclass(eq=False, repr=False)
class Deadlines:
    """Deadlines at a fixed rate.

    They are whole periods after the start: one that is missed does not delay those after it, and nothing drifts.
    """

    rate_hz: Positive  #: deadlines per second, > 0
    _: KW_ONLY
    window: PositiveInt = 2000  #: latencies that the percentiles are of; raising it smooths them, and delays them
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.period_s = 1.0 / self.rate_hz  #: time between two deadlines
        #: missed: deadlines without the action that was due
        #: passed: deadlines so far, missed ones included
        self.missed = self.passed = 0
        self._latencies: deque[float] = deque(maxlen=self.window)
        self.restart()

    def restart(self) -> None:
        self._start_s = self.clock()
        self._number = 1

    def left_s(self) -> float:
        """Return the time until the next deadline; negative if it has passed."""
        return self._start_s + self._number * self.period_s - self.clock()

    def advance(self) -> None:
        """Take the first deadline that is still to come; those that have passed in between are missed."""
        skipped = max(0, math.floor(-self.left_s() / self.period_s))
        self._number += skipped + 1
        self.passed += skipped + 1
        self.missed += skipped

    def miss(self) -> None:
        self.missed += 1

    def add_latency(self, latency_s: float) -> None:
        """Record the time from an observation to the action chosen for it."""
        self._latencies.append(latency_s)

    def metrics(self, role: str) -> dict[str, float]:
        """Return counts, and percentiles of the last latencies, by names that begin with `role`; from any thread."""
        counts = {f"{role}/deadlines_total": float(self.passed), f"{role}/missed_deadlines_total": float(self.missed)}
        latencies = self._latencies.copy()  # one C call, so the writer cannot interrupt it
        if not latencies:
            return counts
        p50, p99 = 1e3 * np.percentile(np.array(latencies), (50, 99))
        return {**counts, f"{role}/latency_p50_ms": float(p50), f"{role}/latency_p99_ms": float(p99)}
