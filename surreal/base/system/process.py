"""Processes of this machine: children that end with their parent, ages, and cores."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import socket
import sys
import threading
import time
import uuid
from functools import cache
from pathlib import Path

from surreal.base.liveness.probe import birth_of

_PR_SET_PDEATHSIG = 1
_POLL_INTERVAL_S = 0.5


def die_with_parent(
    signal_number: signal.Signals = signal.SIGKILL, *, parent_pid: int | None = None, follow_thread: bool = True
) -> None:
    """Make this process get a signal when its parent ends, also if SIGKILL ended it. Call it first in a child.

    On Linux the kernel sends the signal, but it does so already when the *thread* that spawned this process ends. With
    `follow_thread=False`, and on other systems, a daemon thread watches the parent instead.

    Args:
        signal_number: signal to send to this process.
        parent_pid: default: the current parent; give it if the parent may have died before this call.
        follow_thread: False if the parent spawned this process from a thread that may end before it.
    """
    expected = os.getppid() if parent_pid is None else parent_pid
    if not (follow_thread and sys.platform == "linux" and _ask_kernel(signal_number)):
        watcher = threading.Thread(target=_watch, args=(expected, signal_number), name="parent-watch", daemon=True)
        watcher.start()
    # The parent may have died before the kernel was asked.
    if os.getppid() != expected:
        os.kill(os.getpid(), signal_number)


@cache
def machine_id() -> str:
    """Return the identity of this machine or container: processes with the same one see each other's process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode()}"


def count_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Count the cores that this process may use, >= 1: a container's share is in `cgroup/cpu.max`."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(count, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no container, or no limit: "max"
        return count


def is_process_alive(pid: int) -> bool:
    """Whether a process of this machine runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True


def process_start(pid: int) -> int | None:
    """Return when a process of this machine began, in clock ticks since the boot; None if unknown."""
    birth = birth_of(pid)
    return int(birth) if birth else None


def process_age_s(pid: int) -> float | None:
    """Return how long ago a process of this machine began, s; None if unknown."""
    began = process_start(pid)
    if began is None:
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK"))


def _ask_kernel(signal_number: signal.Signals) -> bool:
    """Set the parent-death signal; returns whether the kernel accepted it."""
    try:
        return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def _watch(parent_pid: int, signal_number: signal.Signals) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_POLL_INTERVAL_S)
    os.kill(os.getpid(), signal_number)
