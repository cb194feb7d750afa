"""The faults: each strikes a running system, and may end after a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.kill_test.running import Running

#: How long a fault that ends lasts, s.
HOLD_S = 20.0


class NotApplicableError(Exception):
    """The system has no such process."""


class Fault(NamedTuple):
    """Something that goes wrong."""

    title: str
    strike: Callable[[Running], None]  #: returns when the fault has ended


def _kill(role: str) -> Callable[[Running], None]:
    def strike(running: Running) -> None:
        found = running.role(role)
        if not found:
            raise NotApplicableError(f"it has no separate {role}")
        if role == "worker" and found == running.role("learner"):
            raise NotApplicableError("the trainer steps the environments itself")
        found[-1].kill()

    return strike


def _kill_tree(running: Running) -> None:
    running.kill_all()
    running.start()


def _stop(role: str) -> Callable[[Running], None]:
    def strike(running: Running) -> None:
        stopped = running.role(role)
        for process in stopped:
            process.suspend()
        time.sleep(HOLD_S)
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    return strike


def _cut(running: Running) -> None:
    if running.link is None or running.link.process is None:
        raise NotApplicableError("it has no link")
    link = psutil.Process(running.link.process.pid)
    link.suspend()
    try:
        time.sleep(HOLD_S)
    finally:
        link.resume()


def _fill_disk(running: Running) -> None:
    ballast = running.folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(65536)):
            pass
    end = time.monotonic() + HOLD_S
    while time.monotonic() < end:
        running.look()
        time.sleep(0.2)
    _remove(ballast)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


FAULTS = {
    "none": Fault("no fault", lambda _: None),
    "worker": Fault("SIGKILL of a worker", _kill("worker")),
    "learner": Fault("SIGKILL of the learner", _kill("learner")),
    "store": Fault("SIGKILL of the store", _kill("store")),
    "tree": Fault("SIGKILL of all processes", _kill_tree),
    "stop-worker": Fault("SIGSTOP of the workers for 20 s", _stop("worker")),
    "stop-learner": Fault("SIGSTOP of the learner for 20 s", _stop("learner")),
    "cut": Fault("a cut link for 20 s", _cut),
    "disk": Fault("a full disk for 20 s", _fill_disk),
}
