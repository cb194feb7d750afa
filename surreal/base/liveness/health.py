"""`HealthFile`: a process says in a file how it is, as long as it can; `surreal health` (`probe.py`) reads it.

A thread of its own writes it every two seconds from what loops and waits show anyway. A process that is stopped, or
in which no thread comes to run any more, writes nothing, and the file grows old.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from surreal.base.liveness.probe import ENDING, HEALTH_VARIABLE, STARTING, WORKING, birth_of
from surreal.base.liveness.pulse import MAIN_LOOP, pulses
from surreal.base.liveness.wait_notice import WAITS
from surreal.base.system.files import write_whole

logger = logging.getLogger(__name__)


class Vitals(NamedTuple):
    """How a process is."""

    phase: str  #: one of the words in `probe.py`
    waits_for: tuple[str, ...] = ()  #: for two seconds or more, and not because it has nothing to do
    hangs_in: str = ""  #: loop and call


def look_at_loops(stop: threading.Event) -> Vitals:
    """How a process with a main loop is.

    Args:
        stop: set while it drains.
    """
    found = pulses()
    has_begun = any(pulse.name == MAIN_LOOP and (pulse.has_begun or pulse.has_turned) for pulse in found)
    phase = ENDING if stop.is_set() else WORKING if has_begun else STARTING
    waits = tuple(WAITS.texts(with_idle=False))
    return Vitals(phase, waits, next((pulse.hangs_in for pulse in found if pulse.hangs_in), ""))


class HealthFile:
    """The file of one process, as `$SURREAL_HEALTH` names it; without that, nothing is written.

        with HealthFile("agent", lambda: look_at_loops(stop)):
            work()

    Args:
        role: of the process.
        look: how the process is; called on the thread that writes.
        path: of the file; None: none is written.
        interval_s: between two writes, s, > 0; raising it finds out later that a process is stopped.

    Attributes:
        look: as above; may be replaced.
    """

    def __init__(self, role: str, look: Callable[[], Vitals], path: Path | None, *, interval_s: float = 2.0) -> None:
        self._role = role
        self.look = look
        self._path = path
        self._interval_s = interval_s
        self._birth = birth_of(os.getpid())
        self._stop = threading.Event()
        self._has_failed = False

    def __enter__(self) -> Self:
        if self._path is not None:
            self.write()
            threading.Thread(target=self._loop, name="health", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def write(self) -> None:
        """Say how the process is now; a file that cannot be written is told of once, and ends nothing."""
        if self._path is None:
            return
        state = {"role": self._role, "pid": os.getpid(), "birth": self._birth, "at_s": time.monotonic()}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Not synced: a slow disk must not make a process look dead.
            write_whole(self._path, json.dumps({**state, **self.look()._asdict()}), is_synced=False)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("%s cannot be written, so nobody knows how this process is: %s", self._path, error)

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.write()


def health_path(variables: Mapping[str, str]) -> Path | None:
    """The file that environment variables name; None if they name none."""
    return Path(path) if (path := variables.get(HEALTH_VARIABLE)) else None
