"""`WaitNotice`: a wait that lasts says what it is for, once in the log, and for as long as it lasts to whoever asks.

What a process waits for is a property of the process, as its log is: `WAITS` holds it, any component adds to it through
a notice, and the heartbeat and the watchdog read it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

#: How long a wait may last without a word, s.
PATIENCE_S = 2.0
#: Between two notices of one owner, s: one that waits again and again does not fill the log.
_QUIET_S = 600.0
#: A wait that nobody has spoken of for this long is over, whatever became of who waited, s.
_STALE_S = 15.0


class _Wait(NamedTuple):
    text: str
    began_s: float
    told_s: float
    thread_id: int
    is_idle: bool


class Waits:
    """The waits of a process; those that last for a moment are nobody's business.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: dict[Hashable, _Wait] = {}

    def note(self, key: Hashable, text: str, *, began_s: float | None = None, is_idle: bool = False) -> None:
        """Somebody waits, on this thread; called again and again while it lasts.

        Args:
            key: tells this wait from others.
            text: what for: "waiting for the learner".
            began_s: when it began, by the clock; None: with the first note.
            is_idle: whether this process has nothing to do, and lacks nothing to serve what comes.
        """
        now, known = self._clock(), self._waits.get(key)
        if began_s is None:
            began_s = now if known is None else known.began_s
        self._waits[key] = _Wait(text, began_s, now, threading.get_ident(), is_idle)

    def end(self, key: Hashable) -> None:
        """That wait is over; calling it without one does nothing."""
        self._waits.pop(key, None)

    def texts(self, *, with_idle: bool = True) -> list[str]:
        """What has been waited for, for two seconds or more, the oldest first; perhaps without the idle waits."""
        now = self._clock()
        waits = (wait for wait in self._current() if with_idle or not wait.is_idle)
        return list(dict.fromkeys(wait.text for wait in waits if now - wait.began_s >= PATIENCE_S))

    def is_waiting(self, thread_id: int) -> bool:
        """Whether a thread waits for something that has a name."""
        return any(wait.thread_id == thread_id for wait in self._current())

    def _current(self) -> list[_Wait]:
        now = self._clock()
        for key, wait in list(self._waits.items()):
            if now - wait.told_s > _STALE_S:
                self._waits.pop(key, None)
        return sorted(self._waits.copy().values(), key=lambda wait: wait.began_s)


#: Of this process.
WAITS = Waits()


class WaitNotice:
    """Says what is waited for, as a warning, when that has taken two seconds.

        notice = WaitNotice(logger)
        while not is_there():
            notice.tell("waiting for the learner, at most %.0f s", timeout_s)
            time.sleep(0.1)
        notice.end()

    Args:
        logger: of the module that waits.
        level: of the one record; a wait that is usual needs no warning.
        is_idle: whether this process has nothing to do, and lacks nothing to serve what comes.
        clock: seconds, monotonic.
        waits: where the wait shows while it lasts.
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
        """A wait begins; the first one does when this object is made, later ones also when they are told of."""
        self.end()
        self._began_s = self._clock()

    def tell(self, message: str, *args: object) -> None:
        """Say it, if it is time; called as long as the wait goes on."""
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
        """The wait is over; cheap where there was none."""
        if self._began_s is not None:
            self._began_s = None
            self._waits.end(self)
