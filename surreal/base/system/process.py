"""Processes and memory: children that end with their parent, ages, cores, priority; how Redis' memory is divided."""

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
from contextlib import suppress
from functools import cache
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.base.system.probe import birth_of

_PR_SET_PDEATHSIG = 1
_POLL_INTERVAL_S = 0.5


def die_with_parent(
    signal_number: signal.Signals = signal.SIGKILL, *, parent_pid: int | None = None, follow_thread: bool = True
) -> None:
    """Make this process get a signal when its parent ends, also if SIGKILL ended it. Call it first in a child; give the
    `parent_pid` if the parent may have died before this call.

    On Linux the kernel sends the signal, but it does so already when the *thread* that spawned this process ends. With
    `follow_thread=False`, for such a thread, and on other systems, a daemon thread watches the parent instead.
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


#: Share of maxmemory that the stream may take; the rest is for parameters, heartbeats and metrics.
STREAM_SHARE = 0.85
#: The owner keeps the stream below its bound, so that there is room for appends while it evicts: a share of the bound,
#: and at least some large chunks, but never more than half.
FILL_SHARE = 0.9
ROOM_BYTES = 4 << 20
#: Default maxmemory of a server: the least, and the steps by which it grows with its replay.
_LEAST_BYTES, _STEP_BYTES = 512 << 20, 64 << 20
#: Rows that a chunk may repeat of the one before for each new row.
_MOST_REPEATED = 0.3

# <malloc.h> of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20
_LARGEST_KEPT_BYTES = 32 << 20


def stream_bound_bytes(maxmemory_bytes: int) -> int:
    """Return the bytes at which a stream refuses more."""
    return int(STREAM_SHARE * maxmemory_bytes)


def largest_replay_bytes(maxmemory_bytes: int) -> int:
    """Return the most bytes of experience that the owner of a stream may keep."""
    bound = stream_bound_bytes(maxmemory_bytes)
    room = max((1 - FILL_SHARE) * bound, ROOM_BYTES)
    return max(int(bound - room), bound // 2)


def memory_for_replay(replay_bytes: int, least_bytes: int = _LEAST_BYTES) -> int:
    """Return the maxmemory of a server that holds so many bytes of experience, at least `least_bytes`."""
    memory = least_bytes
    while largest_replay_bytes(memory) < replay_bytes:
        memory += _STEP_BYTES
    return memory


def least_new_rows(repeated: int) -> int:
    """Return the new rows, >= 1, that a chunk needs if it repeats so many: at most 1.3 rows are sent for each."""
    return max(1, math.ceil(repeated / _MOST_REPEATED))


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for later arrays instead of returning it to the system; call it early.

    A forward pass of a convolutional network takes and frees tens of MiB. The system clears every page that it gives
    out, which can cost half as much time as the network. Up to 256 MiB are kept, in arrays of up to 32 MiB each.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES))


def run_in_real_time() -> None:
    """Run this process's threads at real-time priority; raises `ConfigError` if the system does not permit it."""
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(1))
    except (OSError, AttributeError) as error:  # systems other than Linux have neither
        raise ConfigError(
            f"env.realtime is true, but the system refuses a real-time priority ({error}); permit it with ulimit -r 1, "
            "CAP_SYS_NICE or root, or set env.realtime to false"
        ) from None
