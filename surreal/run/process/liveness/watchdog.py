"""The watchdog of a role process: it finds a loop that hangs, names the call, and does what `run.on_hang` says.

Each loop of the process has a `Pulse`: the main one in `RoleProcess.should_stop`, threads in their `Supervisor`. A
thread with a wait notice (`WAITS`: Redis, credit, data, ...) does not hang.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from surreal.base.system.health import Pulse, innermost_call, pulses, stack_of
from surreal.base.system.logs import WAITS, Waits
from surreal.config import Config
from surreal.distributed.telemetry.telemetry import Telemetry

logger = logging.getLogger(__name__)


_MAX_INTERVAL_S = 1.0
_MAX_FRAMES = 30


@dataclass(eq=False)
class Watchdog:
    """Looks at all pulses of the process, on its own thread."""

    timeout_s: float  #: longest iteration of a loop, s, > 0
    show: Callable[[str], None]  #: told which loop hangs in which call; "" if no loop hangs
    #: called once with a sentence when a loop that had begun hangs; None: only warn
    act: Callable[[str], None] | None = None
    clock: Callable[[], float] = time.monotonic  #: seconds, monotonic
    waits: Waits = WAITS  #: waits of the process
    find: Callable[[], Sequence[Pulse]] = pulses  #: gives the pulses

    def __post_init__(self) -> None:
        self._interval_s = min(_MAX_INTERVAL_S, self.timeout_s / 4)
        self._looked_s = self.clock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._looked_s = self.clock()
        self._thread = threading.Thread(target=self._loop, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; returns at once."""
        self._stop.set()

    def look(self) -> None:
        now = self.clock()
        # Time while the process was stopped or the machine slept does not count.
        passed_s, self._looked_s = min(now - self._looked_s, 2 * self._interval_s), now
        found = self.find()
        for pulse in found:
            if pulse.has_turned or self.waits.is_waiting(pulse.thread_id):
                self._note_turn(pulse)
                continue
            pulse.silence_s += passed_s
            if pulse.silence_s >= self.timeout_s and not pulse.hangs_in:
                self._note_hang(pulse)
        self.show(_hangs(found))

    def _note_turn(self, pulse: Pulse) -> None:
        if pulse.hangs_in:
            logger.warning("%s continues after %.0f s", pulse.name, pulse.silence_s)
            pulse.hangs_in = ""
        pulse.has_begun = pulse.has_begun or pulse.has_turned
        pulse.has_turned = False
        pulse.silence_s = 0.0

    def _note_hang(self, pulse: Pulse) -> None:
        stack = stack_of(pulse.thread_id)
        pulse.hangs_in = f"{pulse.name} hangs in {innermost_call(stack)}"
        sentence = f"{pulse.hangs_in}, for {pulse.silence_s:.0f} s now"
        logger.warning("%s", sentence)
        logger.info("%s is at:\n%s", pulse.name, "".join(traceback.format_list(stack[-_MAX_FRAMES:])).rstrip())
        self.show(_hangs(self.find()))
        if self.act is not None and pulse.has_begun:
            self.act(sentence)

    def _loop(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.look()


def _hangs(found: Sequence[Pulse]) -> str:
    return "; ".join(pulse.hangs_in for pulse in found if pulse.hangs_in)


#: Time to send the last of the log, s: the telemetry itself may hang.
_LAST_LOG_S = 3.0


def make_watchdog(
    config: Config, telemetry: Telemetry, stop: threading.Event, end_run: Callable[[str], object]
) -> Watchdog:
    """Make the watchdog of a process."""

    def show(text: str) -> None:
        telemetry.hangs_in = text

    def act(sentence: str) -> None:
        if stop.is_set():
            return
        ends = config.run.on_hang == "end"
        _within(_LAST_LOG_S, lambda: end_run(sentence) if ends else None)
        _within(_LAST_LOG_S, telemetry.step)
        sys.stderr.write(f"error: {sentence}\n")
        sys.stderr.flush()
        if ends:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)  # a launcher restarts what a signal ended

    return Watchdog(config.run.hang_timeout_s, show=show, act=None if config.run.on_hang == "warn" else act)


def _within(timeout_s: float, action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action, name="last-words", daemon=True)
    thread.start()
    thread.join(timeout_s)
