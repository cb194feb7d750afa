"""Decides whether one more session fits into this machine's memory.

The memory a session needs is what the process and its descendants have grown by since no session was open, for each one
that is open now; what connections hold of messages that are under way is not counted in, as it comes and goes. It must
be available without swapping, in the machine and in the container.

With a few sessions, most of the growth is what all share: modules, the network's buffers. So the estimate is a mean
over measurements, in which each counts as many sessions as it saw: it follows a large change at once and a small one
gradually.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import psutil

from surreal.base.ranges import PositiveInt, checked

_CGROUP = Path("/sys/fs/cgroup")
#: How old a measurement may be, s: one takes a millisecond.
_MEASURE_INTERVAL_S = 0.5
#: The same for one that speaks against a session.
_REFUSAL_INTERVAL_S = 0.02
#: Sessions that all measurements so far count as, at most: more keeps the estimate longer.
_MEMORY_SESSIONS = 16


@checked
@dataclass(eq=False, repr=False)
class Admission:
    """Admits sessions while there is room for them."""

    max_sessions: PositiveInt | None = None  #: sessions open at the same time, >= 1; None: only memory counts
    reserve_bytes: int = 64 << 20  #: memory to be left free; raising it stops earlier
    _: KW_ONLY
    read_used: Callable[[], int] | None = None  #: gives the bytes that this process and its descendants use
    read_available: Callable[[], int] | None = None  #: gives the bytes that can be had without swapping
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._read_used = self.read_used or used_bytes
        self._read_available = self.read_available or available_bytes
        self._base = self._read_used()
        self._held = 0  # the most that messages under way have taken since then; freed, it may stay with the process
        self._need = 0.0  # bytes of one session
        self._available = self._read_available()
        self._measured_s = self.clock()
        self._admitted = 0  # since the measurement: their memory is not in it

    @property
    def session_bytes(self) -> float:
        """Memory that one session is thought to need."""
        return self._need

    def admits(self, open_sessions: int, read_buffered: Callable[[], int] = lambda: 0) -> bool:
        """Decide whether another session may be opened, which then counts; `read_buffered` gives connections' bytes."""
        if self.max_sessions is not None and open_sessions >= self.max_sessions:
            return False
        for interval_s in (_MEASURE_INTERVAL_S, _REFUSAL_INTERVAL_S):
            if self.clock() - self._measured_s >= interval_s:
                self._measure(open_sessions, read_buffered())
            if self._available - self.reserve_bytes >= self._need * (self._admitted + 1):
                self._admitted += 1
                return True
        return False

    def note_buffered(self, buffered: int) -> None:
        """Record the bytes of unfinished messages that connections hold, between the measurements."""
        self._held = max(self._held, buffered)

    def _measure(self, open_sessions: int, buffered: int) -> None:
        self._measured_s = self.clock()
        self._available = self._read_available()
        self._admitted = 0
        used = self._read_used()
        if not open_sessions:
            self._base, self._held = used, 0
            return
        self.note_buffered(buffered)
        growth = max(0, used - self._base - self._held)
        self._need = (growth + self._need * _MEMORY_SESSIONS) / (open_sessions + _MEMORY_SESSIONS)


def used_bytes() -> int:
    """Resident bytes of this process and its descendants."""
    me = psutil.Process()
    total: int = me.memory_info().rss
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += child.memory_info().rss
    return total


def available_bytes() -> int:
    """Bytes that can be had without swapping: of the machine, and of the control group this process is in."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return available
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        # The cache of files counts as used, but gives way.
        return min(available, int(limit) - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):
        return available
