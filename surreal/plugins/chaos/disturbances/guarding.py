"""`Guard`: starts a process that undoes the disturbances if this process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from typing import Self

from surreal.plugins.chaos.disturbances import guard
from surreal.plugins.chaos.disturbances.guard import start_of


class Guard:
    """Undoes what is open at the end of a `with`, also if this process is killed.

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
        """Cancel the signal."""
        if (number, pid) in self._open:
            self._tell("-", number, pid)
            del self._open[number, pid]

    def _tell(self, sign: str, number: signal.Signals, pid: int) -> None:
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("a guard is used in a `with`")
        with suppress(OSError):  # it was killed
            self._process.stdin.write(f"{sign} {int(number)} {pid} {self._open[number, pid]}\n")
            self._process.stdin.flush()
