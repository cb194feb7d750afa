"""What is looked up no more often than every few seconds, however many ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Seldom(Generic[T]):
    """The newest answer to a question that costs something.

    Whoever asks first waits for the answer; later, one asks anew while the others are given the answer before.

    Args:
        ask: the question; called by one thread at a time.
        interval_s: how long an answer holds, >= 0.
        clock: seconds that only grow.
    """

    def __init__(self, ask: Callable[[], T], interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: list[T] = []
        self._asked = 0.0

    def get(self) -> T:
        """The answer."""
        if self._answers and (self._clock() - self._asked < self._interval_s or self._lock.locked()):
            return self._answers[0]
        with self._lock:
            if not self._answers or self._clock() - self._asked >= self._interval_s:
                self._answers = [self._ask()]
                self._asked = self._clock()
            return self._answers[0]
