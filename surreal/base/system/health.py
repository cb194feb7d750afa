"""Liveness of a process: pulses of its loops, its health file, its start-up time, and recent deaths of its children.

Each loop owns a `Pulse` and stores to one attribute in each iteration. The watchdog reads the pulses
(`surreal.run.process.liveness`). A thread writes the `HealthFile` every two seconds, and `surreal health`
(`probe.py`) reads it: a process that is stopped or stuck writes nothing, so its file grows old.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import sysconfig
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

from surreal.base.system.files import write_whole
from surreal.base.system.logs import WAITS
from surreal.base.system.probe import ENDING, HEALTH_VARIABLE, STARTING, WORKING, birth_of
from surreal.base.system.process import process_age_s

logger = logging.getLogger(__name__)

#: Name of a process's main loop.
MAIN_LOOP = "the main loop"
#: Window of `run.restart_limit`, s.
RESTART_WINDOW_S = 60.0

_LIBRARY = sysconfig.get_path("stdlib")
_SITE_PACKAGES = sysconfig.get_path("purelib")


class Pulse:
    """One loop, on the thread that makes this object.

    pulse = Pulse("learner")
    while running:
        pulse.has_turned = True
        work()
    pulse.close()
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread_id = threading.get_ident()
        self.has_turned = False  #: set by the loop in each iteration, and cleared by the watchdog
        self.has_begun = False  #: whether the watchdog has seen an iteration
        self.silence_s = 0.0  #: time without an iteration, as counted by the watchdog
        self.hangs_in = ""  #: loop and call, while the watchdog finds that the loop hangs; else ""
        _pulses.add(self)

    def close(self) -> None:
        _pulses.discard(self)


_pulses: weakref.WeakSet[Pulse] = weakref.WeakSet()


def pulses() -> list[Pulse]:
    """List the loops of this process that have not ended."""
    return list(_pulses)


def stack_of(thread_id: int) -> list[traceback.FrameSummary]:
    """Return a thread's stack, innermost call last; empty if there is no such thread."""
    frame: FrameType | None = sys._current_frames().get(thread_id)
    return [] if frame is None else list(traceback.extract_stack(frame))


def innermost_call(stack: Sequence[traceback.FrameSummary]) -> str:
    """Name the innermost call of a stack outside Python's library: `step (my_env.py line 12)`."""
    own = own_frames(stack)
    return f"{own[-1].name} ({Path(own[-1].filename).name} line {own[-1].lineno})" if own else "a call without a name"


def own_frames(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Return the calls of a stack outside Python's library, or all calls if there are no others."""

    def is_library(filename: str) -> bool:
        is_frozen = filename.startswith("<frozen")
        return is_frozen or (filename.startswith(_LIBRARY) and not filename.startswith(_SITE_PACKAGES))

    return [frame for frame in stack if not is_library(frame.filename)] or list(stack)


class Vitals(NamedTuple):
    """State of a process."""

    phase: str  #: one of the words in `probe.py`
    waits_for: tuple[str, ...] = ()  #: waits of two seconds or more, without idle ones
    hangs_in: str = ""  #: loop and call


def look_at_loops(stop: threading.Event) -> Vitals:
    """Return the state of a process with a main loop; `stop` is set while it drains."""
    found = pulses()
    has_begun = any(pulse.name == MAIN_LOOP and (pulse.has_begun or pulse.has_turned) for pulse in found)
    phase = ENDING if stop.is_set() else WORKING if has_begun else STARTING
    waits = tuple(WAITS.texts(with_idle=False))
    return Vitals(phase, waits, next((pulse.hangs_in for pulse in found if pulse.hangs_in), ""))


@dataclass(eq=False)
class HealthFile:
    """The health file of one process.

        with HealthFile("agent", lambda: look_at_loops(stop), health_path(os.environ)):
            work()

    A separate thread writes it.
    """

    role: str
    look: Callable[[], Vitals]  #: returns the state of the process; called on the thread that writes; may be replaced
    path: Path | None  #: None writes none
    interval_s: float = 2.0  #: between two writes, s, > 0; raising it delays the detection of a stopped process

    def __post_init__(self) -> None:
        self._birth = birth_of(os.getpid())
        self._stop = threading.Event()
        self._has_failed = False

    def __enter__(self) -> Self:
        if self.path is not None:
            self.write()
            threading.Thread(target=self._loop, name="health", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def write(self) -> None:
        """Write the current state; a failure is logged once and raises nothing."""
        if self.path is None:
            return
        state = {"role": self.role, "pid": os.getpid(), "birth": self._birth, "at_s": time.monotonic()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Not synced: a slow disk must not make a process look dead.
            write_whole(self.path, json.dumps({**state, **self.look()._asdict()}), is_synced=False)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("%s cannot be written, so this process cannot be probed: %s", self.path, error)

    def _loop(self) -> None:
        while not self._stop.wait(self.interval_s):
            self.write()


def health_path(variables: Mapping[str, str]) -> Path | None:
    """Return the path of the health file from the environment; None if `$SURREAL_HEALTH` is not set."""
    return Path(path) if (path := variables.get(HEALTH_VARIABLE)) else None


class StartParts(NamedTuple):
    """Parts of the time until a process's first step, s."""

    lease_s: float  #: waiting for leases and for the name of a predecessor
    restore_s: float  #: connecting, restoring, building
    first_step_s: float  #: from then to the first env step or update


class Startup:
    """Parts of this process's start-up time, which the heartbeat reports once; marks are set from any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock() - (process_age_s(os.getpid()) or 0.0)
        self._leases: list[Callable[[], float]] = []
        self._restored: tuple[float, float] | None = None
        self._is_working = False
        self._untold: StartParts | None = None

    def watch_lease(self, waited_s: Callable[[], float]) -> None:
        """Count the time `waited_s()` as a wait for a lease."""
        self._leases.append(waited_s)

    def mark_restored(self) -> None:
        self._restored = self._restored or (self._clock(), self._lease_s())

    def mark_first_step(self) -> None:
        if not self._is_working and self._restored is not None:
            self._is_working = True
            now_s, lease_s = self._clock(), self._lease_s()
            restored_s, lease_before_s = self._restored
            first_step_s = now_s - restored_s - (lease_s - lease_before_s)
            self._untold = StartParts(lease_s, restored_s - self._began_s - lease_before_s, first_step_s)

    def metrics(self) -> dict[str, float]:
        """Return the parts once, after the first step."""
        parts, self._untold = self._untold, None
        return {} if parts is None else {f"start_{name}": value for name, value in parts._asdict().items()}

    def _lease_s(self) -> float:
        return sum(waited_s() for waited_s in self._leases)


class RecentDeaths:
    """Counts deaths within a sliding window, s, > 0; restarts wait longer, or stop, by this count."""

    def __init__(self, window_s: float = RESTART_WINDOW_S, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.window_s = window_s
        self._clock = clock
        self._times_s: deque[float] = deque()

    def add(self) -> int:
        """Record a death now, and return the number of deaths within the window."""
        self._times_s.append(self._clock())
        return len(self)

    def __len__(self) -> int:
        while self._times_s and self._times_s[0] < self._clock() - self.window_s:
            self._times_s.popleft()
        return len(self._times_s)
