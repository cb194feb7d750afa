"""Ctrl-C and friends: processes drain at the first, and the launcher counts them, so that no drain is cut off."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def set_at_signals(stop: threading.Event, *, is_abortable: bool = False) -> None:
    """Set an event at SIGTERM and SIGINT.

    Args:
        stop: the event.
        is_abortable: whether a SIGINT that finds it set raises KeyboardInterrupt.
    """

    def note(number: int, _: FrameType | None) -> None:
        if is_abortable and number == signal.SIGINT and stop.is_set():
            raise KeyboardInterrupt
        try:
            # What was interrupted may be a wait for this very event, and hold the lock that `set` takes.
            _thread.start_new_thread(stop.set, ())
        except RuntimeError:  # no more threads
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)


class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP: the first one drains, the second ends at once."""

    def __init__(self) -> None:
        self.count = 0
        self.name = ""

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Handle the signals inside, and give them back afterwards."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.count += 1
        self.name = signal.Signals(number).name

    @property
    def is_draining(self) -> bool:
        return self.count >= 1

    @property
    def is_aborting(self) -> bool:
        return self.count >= 2
