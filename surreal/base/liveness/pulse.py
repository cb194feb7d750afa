"""`Pulse`: a loop's sign of life, and where a loop hangs that gives none.

A loop owns a pulse, and stores to one attribute in each turn. The watchdog (`surreal.run.process.liveness.watchdog`)
looks at the pulses of its process. `Supervisor` gives each of its threads one.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import traceback
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

#: Name of the loop that is a process's work.
MAIN_LOOP = "the main loop"

_LIBRARY = sysconfig.get_path("stdlib")
_SITE_PACKAGES = sysconfig.get_path("purelib")


class Pulse:
    """One loop on the thread that makes this object.

        pulse = Pulse("learner")
        while running:
            pulse.has_turned = True
            work()
        pulse.close()

    Args:
        name: of the loop.

    Attributes:
        has_turned: set by the loop in each turn, and cleared by who watches.
        has_begun: whether who watches has ever seen a turn.
        silence_s: for how long there was none, as who watches has counted.
        hangs_in: loop and call, while who watches finds that it hangs; else "".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.thread_id = threading.get_ident()
        self.has_turned = False
        self.has_begun = False
        self.silence_s = 0.0
        self.hangs_in = ""
        _pulses.add(self)

    def close(self) -> None:
        """The loop has ended."""
        _pulses.discard(self)


_pulses: weakref.WeakSet[Pulse] = weakref.WeakSet()


def pulses() -> list[Pulse]:
    """The loops of this process that have not ended."""
    return list(_pulses)


def stack_of(thread_id: int) -> list[traceback.FrameSummary]:
    """What a thread is in, the innermost call last; empty if there is no such thread."""
    frame: FrameType | None = sys._current_frames().get(thread_id)
    return [] if frame is None else list(traceback.extract_stack(frame))


def innermost_call(stack: Sequence[traceback.FrameSummary]) -> str:
    """The innermost call of a stack that is not Python's own: `step (my_env.py line 12)`."""
    own = own_frames(stack)
    return f"{own[-1].name} ({Path(own[-1].filename).name} line {own[-1].lineno})" if own else "a call without a name"


def own_frames(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The calls of a stack that are not Python's own, or all if there are none else."""
    return [frame for frame in stack if not _is_library(frame.filename)] or list(stack)


def _is_library(filename: str) -> bool:
    is_frozen = filename.startswith("<frozen")
    return is_frozen or (filename.startswith(_LIBRARY) and not filename.startswith(_SITE_PACKAGES))
