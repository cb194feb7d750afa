"""Ctrl-C and friends, for the launcher: counted, not raised, so that a drain is never cut off in the middle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
