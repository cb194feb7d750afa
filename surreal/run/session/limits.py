"""Limits: when a learner has done what the run asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

from surreal.config import Config


class Limits:
    """The bounds of a run, as its learner sees them.

    Args:
        config: the whole configuration.
        is_timed: whether `run.max_time_s` counts here. Under a launcher the clock is the launcher's: it began earlier,
            and survives this process.
        clock: seconds, monotonic.
    """

    def __init__(self, config: Config, *, is_timed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_updates = config.learner.max_updates
        self._max_env_steps = config.run.max_env_steps
        self._max_time_s = config.run.max_time_s if is_timed else None
        self._clock = clock
        self._started_s = clock()

    def updates_reason(self, updates: int) -> str:
        """Why the learner is done, "" if it is not."""
        if self._max_updates is None or updates < self._max_updates:
            return ""
        return f"max_updates: {updates} updates were done"

    def run_reason(self, env_steps: int) -> str:
        """Why the run is over, "" if it is not."""
        if self._max_env_steps is not None and env_steps >= self._max_env_steps:
            return f"max_env_steps: {env_steps} env steps were done"
        seconds = self._clock() - self._started_s
        if self._max_time_s is not None and seconds >= self._max_time_s:
            return f"max_time_s: {seconds:.0f} s have passed"
        return ""
