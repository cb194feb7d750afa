"""One benchmark at a time on a machine: it holds a lock, and long runs that measure no speed are stopped meanwhile.

    with alone():                               # in a benchmark: waits for the benchmark that holds the lock
        main()
    run_between_benchmarks(command, active)     # in `make learn`

The kernel releases the lock when its holder ends in any way. Processes that were stopped continue then, and also when
the process that stopped them is killed.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

#: How soon a long run notices a benchmark, s.
_POLL_INTERVAL_S = 0.1
#: Reads process ids, a line each; a slim image has no program `kill`.
_CONTINUE = 'while read -r pid; do set -- "$@" "$pid"; done; [ $# -eq 0 ] || kill -CONT "$@"'


def lock_path() -> Path:
    """Return the file whose lock a benchmark holds."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / "surreal-benchmark.lock"


@contextmanager
def alone() -> Iterator[None]:
    """Hold the lock of this machine; while another benchmark does, wait, and report which one it is."""
    descriptor = _open()
    try:
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            sys.stderr.write(f"waiting for another benchmark: {_read(descriptor)}\n")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}, {shlex.join(sys.orig_argv)}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def find_benchmark() -> str:
    """Return the process id and command of the benchmark that holds the lock, or ""."""
    descriptor = _open()
    try:
        return "" if _try_lock(descriptor, fcntl.LOCK_SH) else _read(descriptor)
    finally:
        os.close(descriptor)


class Span(NamedTuple):
    """A stretch of time, s since 1970."""

    began_s: float
    ended_s: float


def overlap_s(spans: Sequence[Span], began_s: float, ended_s: float) -> float:
    """Return how much of the spans lies between two times, s."""
    return sum(max(0.0, min(span.ended_s, ended_s) - max(span.began_s, began_s)) for span in spans)


def run_between_benchmarks(command: Sequence[str], active: list[Span]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; while a benchmark holds the lock, it and all its descendants are stopped.

    `active` gets the spans in which it was not.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    began_s = time.time()
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                stdout, stderr = process.communicate(timeout=_POLL_INTERVAL_S)
                return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
            if find_benchmark():
                active.append(Span(began_s, time.time()))
                _pause(process.pid)
                began_s = time.time()
    finally:
        active.append(Span(began_s, time.time()))


def _pause(pid: int) -> None:
    # It continues the processes when its input ends, and therefore also if this process is killed.
    guard = subprocess.Popen(["sh", "-c", _CONTINUE], stdin=subprocess.PIPE, text=True, start_new_session=True)
    assert guard.stdin is not None
    try:
        stopped: set[int] = set()
        while new := [process for process in _tree(pid) if process.pid not in stopped]:
            for process in new:  # parents first, so that they start no new children
                guard.stdin.write(f"{process.pid}\n")
                guard.stdin.flush()
                stopped.add(process.pid)
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
        descriptor = _open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)
    finally:
        guard.communicate()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _open() -> int:
    return os.open(lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 1000, 0).decode(errors="replace").strip() or "another process"
