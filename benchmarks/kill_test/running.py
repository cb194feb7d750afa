"""`Running`: a system under test, its processes by role, and its counts."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.kill_test.link import Link
from benchmarks.kill_test.tally import FOLDER, SEED

#: Names of processes that keep experience or the state of a cluster.
_STORES = ("redis-server", "gcs_server", "raylet")


class Counts(NamedTuple):
    """The work of all processes, summed over the living and the dead, and what the trainer itself counts."""

    steps: int  #: env steps that environments made
    updates: int  #: gradient steps that learners made
    counted: int | None  #: env steps according to the trainer; None while there is no trainer
    learned: int | None  #: updates according to the trainer
    stored: int | None  #: env steps in the trainer's replay
    returns: int
    episodes: int


@dataclass
class Running:
    """A system that trains in a separate process group.

    Args:
        command: starts it, and continues what is in its folder.
        folder: its files; the counts are in `folder/counts`.
        is_restarted: start the command again when it ends.
        seed: seed of the program, which it reads from the environment.
        link: the way to its store; None: it needs none, or none is cut.
    """

    command: Sequence[str]
    folder: Path
    is_restarted: bool
    seed: int = 1
    link: Link | None = None
    restarts: int = 0
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _seen: dict[int, psutil.Process] = field(default_factory=dict)

    def start(self) -> None:
        counts = self.folder / "counts"
        counts.mkdir(exist_ok=True)
        environment = os.environ | {FOLDER: str(counts), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
        environment |= {SEED: str(self.seed)} | (self.link.environment if self.link is not None else {})
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    self.command, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )

    def look(self) -> None:
        """Notice new processes, and start the command again if it has ended and is to be."""
        root = self._processes[-1]
        with suppress(psutil.NoSuchProcess):
            for process in [psutil.Process(root.pid), *psutil.Process(root.pid).children(recursive=True)]:
                self._seen.setdefault(process.pid, process)
        if self.is_restarted and root.poll() is not None:
            self.restarts += 1
            self.kill_all()
            self.start()

    def kill_all(self) -> None:
        """Kill every process that was ever seen, with all of their descendants."""
        self._see_orphans()
        for process in list(self._seen.values()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for started in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()

    def role(self, role: str) -> list[psutil.Process]:
        """Return the living processes of a role: `worker`, `learner`, `store`, `tree`; the newest is last."""
        self.look()
        if role == "tree":
            return self._alive(self._seen.values())
        if role == "store":
            return [each for each in self._alive(self._seen.values()) if _name(each).startswith(_STORES)]
        kind = {"worker": "steps", "learner": "updates"}[role]
        found = []
        for pid, value in self._values(kind).items():
            with suppress(psutil.NoSuchProcess):
                if value > 1:  # processes that only try out an environment or an update have no role
                    found.append(self._seen.setdefault(pid, psutil.Process(pid)))
        return sorted(self._alive(found), key=lambda process: process.create_time())

    def count(self) -> Counts:
        sums = {kind: sum(self._values(kind).values()) for kind in ("steps", "updates", "returns", "episodes")}
        learners = [process.pid for process in self.role("learner")]
        gauges: dict[str, int | None] = {}
        for kind in ("counted", "learned", "stored"):
            found = [value for pid, value in self._values(kind).items() if pid in learners]
            gauges[kind] = max(found, default=None)
        return Counts(**sums, **gauges)

    def wait_for(self, condition: Callable[[Counts], bool], limit_s: float) -> float | None:
        """Wait until a condition holds; return how long it took, s, or None."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < limit_s:
            self.look()
            if condition(self.count()):
                return time.monotonic() - began_s
            time.sleep(0.05)
        return None

    def _values(self, kind: str) -> Mapping[int, int]:
        found: dict[int, int] = defaultdict(int)
        for path in (self.folder / "counts").glob(f"{kind}-*"):
            data = path.read_bytes()
            if len(data) == 8:
                found[int(path.name.rpartition("-")[2])] = struct.unpack("<q", data)[0]
        return found

    def _see_orphans(self) -> None:
        """Notice children of processes that have ended: they carry the folder in their environment."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(FOLDER) == str(self.folder / "counts"):
                    self._seen.setdefault(process.pid, process)

    def _alive(self, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
        found = []
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
