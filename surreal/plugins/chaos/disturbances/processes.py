"""Ways to disturb processes: kill, pause and continue, no further memory; the base of all disturbances."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from typing import Self

import psutil

from surreal.plugins.chaos.disturbances import guard
from surreal.plugins.chaos.disturbances.guard import start_of
from surreal.plugins.chaos.observing import Life


class Kind(StrEnum):
    """A way to disturb a run."""

    KILL = "kill"  #: SIGKILL of a process
    PAUSE = "pause"  #: SIGSTOP, and SIGCONT some seconds later
    CUT = "cut"  #: all connections of the run are broken again and again
    RESTART = "restart"  #: Redis is killed, and starts again
    FLUSH = "flush"  #: Redis loses all that the run has there
    FULL = "full"  #: Redis has no room left
    SHRINK = "shrink"  #: Redis may use less memory than it does
    FAILOVER = "failover"  #: Redis dies, and a replica without its last data takes its place
    CLOCK = "clock"  #: the clock jumps ahead, and back
    DISK = "disk"  #: syncs to the disk are slow
    MEMORY = "memory"  #: processes get no further memory


#: Values of `--redis` and of `--machine`.
REDIS_KINDS = (Kind.RESTART, Kind.FLUSH, Kind.FULL, Kind.SHRINK, Kind.FAILOVER)
MACHINE_KINDS = (Kind.CLOCK, Kind.DISK, Kind.MEMORY)


class Disturbance(ABC):
    """A disturbance that is ready to begin.

    disturbance.begin()
    while ...: disturbance.turn()     # several times a second
    disturbance.end()
    """

    kind: Kind
    lasts: bool = True  #: whether it lasts for a while, and must be undone
    detail: str = ""  #: a detail for the output, known once it has begun

    def __init__(self, target: str) -> None:
        self.target = target  #: name of the process or server

    @abstractmethod
    def begin(self) -> None:
        """Begin; raises `NotDoneError` if it was not possible, and nothing was changed."""

    def turn(self) -> None:
        """Continue the disturbance; never raises because Redis is away."""

    def end(self) -> None:
        """Undo it; may be called twice."""


class NotDoneError(Exception):
    """The process or server is gone, or cannot be disturbed now."""


class Kill(Disturbance):
    """SIGKILL."""

    kind = Kind.KILL
    lasts = False

    def __init__(self, life: Life) -> None:
        super().__init__(life.name)
        self._life = life

    def begin(self) -> None:
        process = find_process(self._life)
        self.detail = f"process {process.pid}"
        try:
            process.kill()
        except psutil.Error as error:
            raise NotDoneError(str(error)) from error


class Guard:
    """Undoes open disturbances at the end of a `with`, even if this process is killed.

    with Guard() as guard:
        guard.open(signal.SIGCONT, pid)     # first
        os.kill(pid, signal.SIGSTOP)        # then
        ...
        os.kill(pid, signal.SIGCONT)
        guard.close(signal.SIGCONT, pid)
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._open: dict[tuple[int, int], int] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C goes only to this process
        )
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()

    def open(self, number: signal.Signals, pid: int) -> None:
        """Send a signal to a process when this process ends."""
        self._open[number, pid] = start_of(pid)
        self._tell("+", number, pid)

    def close(self, number: signal.Signals, pid: int) -> None:
        if (number, pid) in self._open:
            self._tell("-", number, pid)
            del self._open[number, pid]

    def _tell(self, sign: str, number: signal.Signals, pid: int) -> None:
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("a guard is used in a `with`")
        with suppress(OSError):  # it was killed
            self._process.stdin.write(f"{sign} {int(number)} {pid} {self._open[number, pid]}\n")
            self._process.stdin.flush()


class Pause(Disturbance):
    """SIGSTOP; SIGCONT at the end, or by the guard."""

    kind = Kind.PAUSE

    def __init__(self, life: Life, guard: Guard) -> None:
        super().__init__(life.name)
        self._life, self._guard = life, guard
        self._process: psutil.Process | None = None

    def begin(self) -> None:
        process = find_process(self._life)
        self.detail = f"process {process.pid}"
        self._guard.open(signal.SIGCONT, process.pid)
        self._process = process
        try:
            process.suspend()
        except psutil.Error as error:
            self.end()
            raise NotDoneError(str(error)) from error

    def end(self) -> None:
        if self._process is None:
            return
        with suppress(psutil.Error):  # it was killed meanwhile
            self._process.resume()
        self._guard.close(signal.SIGCONT, self._process.pid)
        self._process = None


class Starve(Disturbance):
    """Processes get no further memory, so one that needs some ends and is started again; at the end, the others may."""

    kind = Kind.MEMORY

    def __init__(self, lives: Iterable[Life]) -> None:
        super().__init__("the machine")
        self._lives = lives
        self._limits: dict[psutil.Process, tuple[int, int]] = {}

    def begin(self) -> None:
        for life in self._lives:
            with suppress(NotDoneError, psutil.Error):
                process = find_process(life)
                self._limits[process] = process.rlimit(psutil.RLIMIT_AS)
                process.rlimit(psutil.RLIMIT_AS, (1, self._limits[process][1]))
        self.detail = f"{len(self._limits)} processes"

    def end(self) -> None:
        for process, limits in self._limits.items():
            with suppress(psutil.Error):  # it has ended
                process.rlimit(psutil.RLIMIT_AS, limits)


def find_process(life: Life) -> psutil.Process:
    """Find the process of a life on this machine; it must not be another user's."""
    if not life.is_here or life.pid == os.getpid():
        raise NotDoneError(f"{life.name} is not a process of this machine")
    try:
        process = psutil.Process(life.pid)
        # A process that got the id meanwhile is younger than the heartbeat.
        is_it = process.status() != psutil.STATUS_ZOMBIE and time.time() - process.create_time() >= life.age_s - 1
        is_own = process.uids().real == os.getuid()
    except psutil.Error as error:
        raise NotDoneError(f"{life.name} is gone") from error
    if not (is_it and is_own):
        raise NotDoneError(f"{life.name} is gone, or another user's")
    return process
