"""`RankProcesses`: the other ranks of a learner on one machine, as children of its rank 0."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from surreal.run.process.arguments import RankPlace
from surreal.run.process.liveness.lifeline import child_environment

_POLL_INTERVAL_S = 0.02
_TERMINATE_S = 5.0


class RankProcesses:
    """Starts them, each as a Python of its own; they end with this process, however it ends. From the main thread only.

    Args:
        module: whose `main` a rank is.
        arguments: of rank 0; the others get the same.
        count: how many ranks there are, rank 0 included.
    """

    def __init__(self, module: str, arguments: Sequence[str], count: int) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._count = count
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, port: int) -> None:
        """Start all of them, to meet at a port of this machine."""
        for rank in range(1, self._count):
            place = RankPlace(rank, self._count, local_rank=rank)
            # In this process's session: Ctrl-C and the end of the session are for all of them.
            self._processes[rank] = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, env=child_environment(place.variables(port))
            )

    def first_ended(self, timeout_s: float = 0.0) -> tuple[int, int] | None:
        """Find a rank that has ended, waiting for one; gives it and its exit code, -N if signal N ended it."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            for rank, process in self._processes.items():
                if (code := process.poll()) is not None:
                    return rank, code
            if time.monotonic() >= deadline_s or not self._processes:
                return None
            time.sleep(_POLL_INTERVAL_S)

    def stop(self, timeout_s: float) -> None:
        """Wait for all of them to end; who takes longer is told to, and then killed."""
        self._wait(timeout_s)
        for process in self._running():
            process.terminate()
        self._wait(_TERMINATE_S)
        for process in self._running():
            process.kill()
            process.wait()

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._processes.values() if process.poll() is None]

    def _wait(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        for process in self._running():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline_s - time.monotonic()))
