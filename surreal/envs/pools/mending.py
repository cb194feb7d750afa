"""What becomes of an environment that raises, or shows impossible numbers: its episode is lost, and another begins.

How often that is forgiven is bounded, and refills: an environment that is at fault once in a while goes on for ever,
one that is broken ends the run with its reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal

from surreal.base.errors import EnvError

logger = logging.getLogger(__name__)

#: What to do when an environment raises an exception.
OnError = Literal["end", "restart"]

#: Episodes of one environment that may be lost without a whole one between them.
_MOST_IN_A_ROW = 10
_LOG_INTERVAL_S = 10.0


class Mercy:
    """Counts the faults of one environment.

    Args:
        clock: gives the time in s.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._in_a_row = 0
        self._untold = 0
        self._told_s = float("-inf")

    def ask(self, fault: str, cause: Exception | None = None) -> None:
        """Forgive a fault, and say so now and then.

        Args:
            fault: what happened, and in which environment.
            cause: the exception, if it was one.

        Raises:
            EnvError: there were too many, and no whole episode between them.
        """
        self._in_a_row += 1
        if self._in_a_row > _MOST_IN_A_ROW:
            lost = f"{self._in_a_row} episodes were lost like this, and none between them came to its end"
            raise EnvError(f"{fault}; {lost}") from cause
        self._untold += 1
        now_s = self._clock()
        if now_s - self._told_s >= _LOG_INTERVAL_S:
            times = f" ({self._untold} faults since the last word of it)" if self._untold > 1 else ""
            logger.warning("%s; its episode is cut, and another begins%s", fault, times, exc_info=cause)
            self._told_s, self._untold = now_s, 0

    def refill(self) -> None:
        """An episode came to its end."""
        self._in_a_row = 0


def describe_error(error: BaseException) -> str:
    """Say what an environment raised, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
