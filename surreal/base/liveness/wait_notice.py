"""Waits: a component that waits longer logs the reason once, and `WAITS` lists it while the wait lasts.

Waits belong to the process, as its log does: any component adds to `WAITS` through a `WaitNotice`, and the heartbeat,
the health file and the watchdog read it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

#: Waits shorter than this are not reported, s.
PATIENCE_S = 2.0
#: Least time between two records of one notice, s, so that repeated waits do not fill the log.
_QUIET_S = 600.0
#: A wait that was not renewed for this long has ended, s.
_STALE_S = 15.0


class _Wait(NamedTuple):
    text: str
    began_s: float
    told_s: float
    thread_id: int
    is_idle: bool


class Waits:
    """The current waits of a process.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[Hashable, _Wait] = {}

    def note(self, key: Hashable, text: str, *, began_s: float | None = None, is_idle: bool = False) -> None:
        """Note a wait on this thread; called repeatedly while it lasts.

        Args:
            key: tells this wait from others.
            text: reason, such as "waiting for the learner".
            began_s: when it began, by the clock; None is the first note.
            is_idle: whether this process is ready and has nothing to do.
        """
        now, known = self._clock(), self._waits.get(key)
        if began_s is None:
            began_s = now if known is None else known.began_s
        self._waits[key] = _Wait(text, began_s, now, threading.get_ident(), is_idle)

    def end(self, key: Hashable) -> None:
        """End that wait, if there is one."""
        self._waits.pop(key, None)

    def texts(self, *, with_idle: bool = True) -> list[str]:
        """List the reasons of waits of two seconds or more, oldest first."""
        now = self._clock()
        waits = (wait for wait in self._current() if with_idle or not wait.is_idle)
        return list(dict.fromkeys(wait.text for wait in waits if now - wait.began_s >= PATIENCE_S))

    def is_waiting(self, thread_id: int) -> bool:
        """Whether a thread is in a wait that was noted."""
        return any(wait.thread_id == thread_id for wait in self._current())

    def _current(self) -> list[_Wait]:
        now = self._clock()
        for key, wait in list(self._waits.items()):
            if now - wait.told_s > _STALE_S:
                self._waits.pop(key, None)
        return sorted(self._waits.copy().values(), key=lambda wait: wait.began_s)


#: Waits of this process.
WAITS = Waits()


class WaitNotice:
    """Logs the reason of a wait as a warning after two seconds.

        notice = WaitNotice(logger)
        while not is_there():
            notice.tell("waiting for the learner, at most %.0f s", timeout_s)
            time.sleep(0.1)
        notice.end()

    Args:
        logger: of the module that waits.
        level: of the record; a usual wait needs no warning.
        is_idle: whether this process is ready and has nothing to do.
        clock: seconds, monotonic.
        waits: lists the wait while it lasts.
    """

    def __init__(
        self,
        logger: logging.Logger,
        *,
        level: int = logging.WARNING,
        is_idle: bool = False,
        clock: Callable[[], float] = time.monotonic,
        waits: Waits = WAITS,
    ) -> None:
        self._logger = logger
        self._level = level
        self._is_idle = is_idle
        self._clock = clock
        self._waits = waits
        self._quiet_until_s = -float("inf")
        self._began_s: float | None = clock()

    def begin(self) -> None:
        """Begin a wait. The first one begins with this object, and `tell` begins one if none is under way."""
        self.end()
        self._began_s = self._clock()

    def tell(self, message: str, *args: object) -> None:
        """Report the wait if it has lasted long enough; called repeatedly while it lasts."""
        now = self._clock()
        if self._began_s is None:
            self._began_s = now
        if now - self._began_s < PATIENCE_S:
            return
        self._waits.note(self, message % args, began_s=self._began_s, is_idle=self._is_idle)
        if now >= self._quiet_until_s:
            self._quiet_until_s = now + _QUIET_S
            self._logger.log(self._level, message, *args, extra={"is_wait": True})

    def end(self) -> None:
        """End the wait, if there is one."""
        if self._began_s is not None:
            self._began_s = None
            self._waits.end(self)
