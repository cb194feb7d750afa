"""How much of its time a process waits for the others: what tells whether a run has too few agents, or too many."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from surreal.base.metrics import RateMeter

T = TypeVar("T")

#: What shares of the time are shares of, s: a few rounds of the limiter, and little enough to act upon.
WINDOW_S = 10.0


class ExperienceWaits:
    """Counts how long a learner waits for experience, from its first update on: a replay that fills is no want.

    Args:
        is_starved: whether what is waited for has to come from the agents.
        clock: seconds, monotonic.
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
        """How long it waited, and the share of the last seconds; nothing before the first update."""
        meter = self._meter
        return {} if meter is None else {"learner/wait_s_total": meter.total, **meter.metrics()}


class AgentWaits:
    """Says which share of its time an agent waits for the learner, and which it is busy.

    Before it begins it is neither, so an agent that has just come is busy for a part of the last seconds only: then
    the sum over all agents is what they did together, also while their number changes.

    Args:
        waited_s: how long it has waited so far, in all.
        clock: seconds, monotonic.
    """

    def __init__(self, waited_s: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._waited_s = waited_s
        self._clock = clock
        self._began_s = clock()
        self._waits = RateMeter("agent/waiting_ratio", window_s=WINDOW_S, clock=clock)
        self._waits.begin(waited_s())

    def metrics(self) -> dict[str, float]:
        """Shares of the last seconds."""
        self._waits.total = self._waited_s()
        shares = self._waits.metrics()
        waiting = min(shares.get("agent/waiting_ratio", 0.0), 1.0)
        there = min((self._clock() - self._began_s) / WINDOW_S, 1.0)
        return {**shares, "agent/busy_ratio": (1.0 - waiting) * there}
