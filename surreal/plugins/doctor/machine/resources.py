"""Resources of this machine that a run needs: disk space, memory, cores, open files."""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from surreal.base.system.files import is_disk_full
from surreal.base.system.process import count_cores
from surreal.config import Config
from surreal.config.schema.learning import RUN_STORE
from surreal.plugins.doctor.frame.finding import Finding, judge, ok
from surreal.plugins.doctor.machine import faults
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER

_FULL_BYTES, _LOW_BYTES = 64 << 20, 1 << 30
_LEAST_SHARED_BYTES = 32 << 20
#: Open files of a role process: connections, logs, checkpoints, libraries.
_FILES = 200
#: Processes for each core above which they are too many.
_CROWD = 4
_CGROUP, _SHARED = Path("/sys/fs/cgroup"), Path("/dev/shm")  # noqa: S108 - looked at, not used


def folders(config: Config | None, runs: Path) -> list[Path]:
    """Return the folders on this machine that a run writes to."""
    stores = config.checkpoint.stores if config is not None else []
    return [runs, *(Path(store) for store in stores if store != RUN_STORE and "://" not in store)]


def free_bytes_at(path: Path) -> int:
    """Return the free space of a path's disk, bytes."""
    return shutil.disk_usage(path).free


def disk(folder: Path, *, free_bytes: Callable[[Path], int] = free_bytes_at) -> Iterator[Finding]:
    """Check whether a folder, or its nearest existing parent, can be written, and how much space is left."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"surreal")
            file.flush()
    except OSError as error:
        fault = faults.DISK_FULL if is_disk_full(error) else faults.NOT_WRITABLE
        yield fault.found(f"{there} cannot be written: {(error.strerror or str(error)).lower()}")
        return
    free = free_bytes(there)
    said = f"{free / 2**30:,.1f} GiB are free for {folder}"
    yield judge(said, (free < _FULL_BYTES, faults.DISK_FULL), (free < _LOW_BYTES, faults.DISK_LOW))


def memory(config: Config, *, available_bytes: Callable[[], int]) -> Iterator[Finding]:
    """Compare the replay with the free memory."""
    own = config.own_redis_bytes if config.redis.address is None else 0
    kept = min(config.replay.max_bytes, own) if own else 0
    mirrored = 0 if config.replay.observations == "remote" or config.has_parameter_servers else config.replay.max_bytes
    left, needed = available_bytes(), kept + mirrored
    parts = [f"Redis {kept / 2**20:,.0f} MiB"] if kept else []
    parts += [f"the learner's copy {mirrored / 2**20:,.0f} MiB"] if mirrored else []
    said = f"{left / 2**30:,.1f} GiB of memory are free"
    if needed > left:
        yield faults.MEMORY.found(f"{said}; a full replay takes {needed / 2**30:,.1f} GiB: {' and '.join(parts)}")
    else:
        yield ok(f"{said}, {needed / 2**30:,.2g} GiB are enough for a full replay" if needed else said)


def available_bytes(cgroup: Path = _CGROUP) -> int:
    """Return the free memory of the machine, or of the container if it has less, bytes."""
    left = int(psutil.virtual_memory().available)
    try:
        limit = int((cgroup / "memory.max").read_text())
        return min(left, max(0, limit - int((cgroup / "memory.current").read_text())))
    except (OSError, ValueError):  # no such container, or "max"
        return left


def open_files(config: Config | None, *, limit: Callable[[], int] | None = None) -> Iterator[Finding]:
    """Compare the limit of open files, by default this process's, with the need of a run's process."""
    allowed = soft_limit() if limit is None else limit()
    needed, why = _FILES, "a process of a run"
    if config is not None and config.rlx.servers:
        needed += config.rlx.max_sessions or 1024
        why = "an RLX server with rlx.max_sessions"
    elif config is not None and config.env.pool == "subproc":
        needed += 4 * (config.env.num_workers or count_cores())
        why = "an agent with its workers"
    if allowed < needed:
        yield faults.FILES.found(
            f"a process may open {allowed} files; {why} needs up to {needed}", f"ulimit -n {2 * needed}"
        )
    else:
        yield ok(f"a process may open {allowed:,} files")


def soft_limit() -> int:
    """Return the number of files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def shared_memory(folder: Path = _SHARED, *, free_bytes: Callable[[Path], int] = free_bytes_at) -> Iterator[Finding]:
    """Check the free space for shared memory."""
    if not folder.exists():  # not on macOS
        return
    free = free_bytes(folder)
    yield judge(f"{free / 2**20:,.0f} MiB are free in {folder}", (free < _LEAST_SHARED_BYTES, faults.SHARED_MEMORY))


def crowd(config: Config, *, number_of_cores: int) -> Iterator[Finding]:
    """Compare the processes of a run with the cores that this process may use."""
    workers = 0
    if config.env.pool == "subproc":
        workers = AGENT.count(config) * (config.env.num_workers or min(number_of_cores, config.env.num_envs))
    processes = sum(role.count(config) for role in (LEARNER, PARAMETER_SERVER, AGENT, EVAL)) + workers
    is_crowd = processes > _CROWD * number_of_cores + 1
    yield judge(f"{processes} processes on {number_of_cores} core(s)", (is_crowd, faults.CORES))
