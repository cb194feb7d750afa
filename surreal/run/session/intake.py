"""Intakes, where a learner's batches come from: a replay with threads, one that is stepped, or agents' gradients.

`LearnerSession` and agents that compute gradients call:

    intake.take_in()
    while (batch := intake.next_batch(timeout_s)) is not None: ...

Also here: how long a learner waits for experience, and the limits that end its run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from surreal.base.metrics import RateMeter
from surreal.config import Config
from surreal.replay import Replay


class ThreadedIntake:
    """A replay whose threads take in experience and make batches ahead."""

    is_stepped = False

    def __init__(self, replay: Replay[Any]) -> None:
        self._replay = replay

    def take_in(self) -> None:
        self._replay.start_threads()

    def next_batch(self, timeout_s: float) -> Any:
        return self._replay.dequeue(timeout_s)


class SteppedIntake:
    """A replay without threads, for a process that acts and learns in turn."""

    is_stepped = True

    def __init__(self, replay: Replay[Any]) -> None:
        self._replay = replay

    def take_in(self) -> None:
        """Insert the experience that was sent since the last turn."""
        self._replay.owner.refresh()
        queue = self._replay.pointer_queue
        while queue.enqueue_step(waits=False):
            while len(queue) and self._replay.step(0.0):
                pass

    def next_batch(self, timeout_s: float = 0.0) -> Any:
        """Make the next batch, with the priorities of the last one; None if the limiter allows none."""
        while not len(self._replay.fetcher_queue):
            if not self._replay.step(0.0):
                return None
        return self._replay.dequeue(0.0)


_DAY_S = 86_400.0


class LearnerLimits:
    """The bounds of a run, as its learner sees them.

    Args:
        is_timed: whether `run.max_time_s` counts here. Under a launcher the clock is the launcher's: it began earlier,
            and survives this process.
    """

    def __init__(self, config: Config, *, is_timed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = config.run
        self._before: tuple[float, int, int] | None = None  # time, updates and env steps
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

    def seconds_left(self, updates: int, env_steps: int) -> float:
        """Predict how long the run continues, s, from its rates since the first call; a day without a limit.

        It is 0 until there are rates. A run that ends at a mean return is expected to last as long again as it has
        lasted.
        """
        now_s = self._clock()
        began_s, *counts = self._before = self._before or (now_s, updates, env_steps)
        left = [_DAY_S]
        limits = self._max_updates, self._max_env_steps
        for done, before, limit in zip((updates, env_steps), counts, limits, strict=True):
            if limit is not None:
                left.append((limit - done) * (now_s - began_s) / (done - before) if done > before else 0.0)
        if self._run.max_time_s is not None:
            left.append(self._run.max_time_s - (now_s - self._started_s))
        if self._run.stop_at_return is not None:
            left.append(now_s - self._started_s)
        return max(0.0, min(left))

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
    """Counts waits for experience that has to come from agents (`is_starved`), from the first update on."""

    def __init__(self, is_starved: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_starved = is_starved
        self._clock = clock
        self._meter: RateMeter | None = None

    def take(self, dequeue: Callable[[float], T | None], timeout_s: float) -> T | None:
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
