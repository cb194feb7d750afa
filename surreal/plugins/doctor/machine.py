"""This machine: packages and programs that a run needs, disk space, memory, cores, open files."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from packaging.requirements import Requirement

from surreal import __version__
from surreal.base.errors import RedisUnavailableError
from surreal.base.system.files import is_disk_full
from surreal.base.system.process import count_cores
from surreal.base.system.program import DISTRIBUTION, install_command
from surreal.config import Config
from surreal.config.schema.learning import RUN_STORE
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.embedded import MIN_MAXMEMORY_BYTES, EmbeddedRedis
from surreal.distributed.server.files import find_redis_server
from surreal.envs.ids import extra_of
from surreal.plugins.doctor.finding import Finding, fault, judge, ok
from surreal.rlx.server.admission import available_bytes
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER

#: Modules of extras, by the extra's name in setup.py.
MODULES = {
    "atari": "ale_py",
    "box2d": "Box2D",
    "mujoco": "mujoco",
    "vizdoom": "vizdoom",
    "ws": "websockets",
    "s3": "s3fs",
    "video": "moviepy",
}


def packages(
    *,
    requirements: Callable[[str], list[str] | None] = importlib.metadata.requires,
    version: Callable[[str], str] = importlib.metadata.version,
) -> Iterator[Finding]:
    """Compare the installed packages with the requirements in setup.py."""
    yield ok(f"Surreal {__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        wanted = [Requirement(text) for text in requirements(DISTRIBUTION) or []]
    except importlib.metadata.PackageNotFoundError:
        yield fault("not-installed", f"there is no distribution {DISTRIBUTION} here")
        return
    count = 0
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            found = version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield fault(
                "package-version", f"{requirement.name} is not installed", f'pip install "{_plain(requirement)}"'
            )
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            count -= 1
            yield fault(
                "package-version",
                f"{requirement.name} is {found}, not {requirement.specifier}",
                f'pip install "{_plain(requirement)}"',
            )
    yield ok(f"{count} packages are of versions that Surreal is made for")


def extras(config: Config, *, is_there: Callable[[str], object] = find_spec) -> Iterator[Finding]:
    """Check the extras that a configuration needs."""
    needed = needed_extras(config)
    for extra, why in needed.items():
        if not is_there(MODULES[extra]):
            yield fault(
                "extra-missing", f"{why} needs {MODULES[extra]}, which is not installed", install_command(extra)
            )
    if needed and all(is_there(MODULES[extra]) for extra in needed):
        yield ok(f"the configuration needs the extras {', '.join(needed)}, which are installed")


def needed_extras(config: Config) -> dict[str, str]:
    """Return the extras that a configuration needs, with the setting that needs each."""
    found: dict[str, str] = {}
    is_made_here = config.env.action_space is None
    for key, env_id in (("env.id", config.env.id if is_made_here else None), ("eval.env_id", config.eval.env_id)):
        if env_id is not None and (extra := extra_of(env_id)) is not None:
            found.setdefault(extra, f"{key} {env_id}")
    for place in (*config.checkpoint.stores, config.checkpoint.restore or ""):
        if place.startswith("s3://"):
            found.setdefault("s3", f"checkpoint {place}")
    if config.eval.record_video_every:
        found.setdefault("video", "eval.record_video_every")
    if config.rlx.servers and config.rlx.demo:
        found.setdefault("ws", "rlx.demo")
    return found


def _plain(requirement: Requirement) -> str:
    extras_text = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras_text}{requirement.specifier}"


_START_TIMEOUT_S = 8.0


def redis_program(*, find: Callable[[], Path] = find_redis_server) -> Iterator[Finding]:
    """Start a redis-server, whose path `find` returns, for a moment."""
    try:
        program = find()
    except RedisUnavailableError as error:
        yield fault("no-redis-server", str(error).partition(";")[0])
        return
    try:
        with (
            EmbeddedRedis(
                maxmemory_bytes=MIN_MAXMEMORY_BYTES, program=program, start_timeout_s=_START_TIMEOUT_S
            ) as server,
            RedisClient(server.address) as client,
        ):
            version = ".".join(map(str, client.check_server(timeout_s=_START_TIMEOUT_S)))
    except (RedisUnavailableError, OSError) as error:
        yield fault("redis-server-fails", " ".join(str(error).split()))
        return
    yield ok(f"a run can start its own Redis: {program}, version {version}")


_GPU_FILES = Path("/dev")


def gpu_names() -> list[str]:
    """List the GPUs that torch can use."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def cuda(*, devices: Callable[[], list[str]] = gpu_names, gpu_files: Path = _GPU_FILES) -> Iterator[Finding]:
    """Check whether torch can use the machine's GPUs, each of which has a file `nvidia0` in `gpu_files`."""
    found, there = devices(), sorted(path.name for path in gpu_files.glob("nvidia[0-9]*"))
    if there and not found:
        yield fault("torch-without-cuda", f"{len(there)} GPU(s) are here, but torch {torch.__version__} can use none")
    else:
        yield ok(f"torch {torch.__version__}, {', '.join(found) or 'without a GPU'}")


def compiler(*, variables: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Look for the C++ compiler that compiled updates need."""
    name = variables.get("CXX", "g++")
    if (path := shutil.which(name, path=variables.get("PATH"))) is None:
        yield fault("no-compiler", f"there is no {name} on $PATH")
    else:
        yield ok(f"updates can be compiled by {path}")


def threads(
    *, cores: int, variables: Mapping[str, str] = os.environ, number: Callable[[], int] = torch.get_num_threads
) -> Iterator[Finding]:
    """Compare the threads that torch uses in a process with the cores that it may use."""
    asked, count = variables.get("OMP_NUM_THREADS", ""), number()
    if count > cores:
        yield fault(
            "torch-threads", f"torch takes {count} threads, but there are {cores} cores; $OMP_NUM_THREADS is {asked!r}"
        )
    else:
        yield ok(f"{cores} core(s); $OMP_NUM_THREADS is {asked or 'not set, so a run gives each process one thread'}")


_FULL_BYTES, _LOW_BYTES = 64 << 20, 1 << 30
_LEAST_SHARED_BYTES = 32 << 20
#: Open files of a role process: connections, logs, checkpoints, libraries.
_FILES = 200
#: Processes for each core above which they are too many.
_CROWD = 4
_SHARED = Path("/dev/shm")  # noqa: S108 - looked at, not used


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
        problem = "disk-full" if is_disk_full(error) else "folder-not-writable"
        yield fault(problem, f"{there} cannot be written: {(error.strerror or str(error)).lower()}")
        return
    free = free_bytes(there)
    said = f"{free / 2**30:,.1f} GiB are free for {folder}"
    yield judge(said, (free < _FULL_BYTES, "disk-full"), (free < _LOW_BYTES, "disk-low"))


def memory(config: Config, *, available_bytes: Callable[[], int] = available_bytes) -> Iterator[Finding]:
    """Compare the replay with the free memory."""
    own = config.own_redis_bytes if config.redis.address is None else 0
    kept = min(config.replay.max_bytes, own) if own else 0
    mirrored = 0 if config.replay.observations == "remote" or config.has_parameter_servers else config.replay.max_bytes
    left, needed = available_bytes(), kept + mirrored
    parts = [f"Redis {kept / 2**20:,.0f} MiB"] if kept else []
    parts += [f"the learner's copy {mirrored / 2**20:,.0f} MiB"] if mirrored else []
    said = f"{left / 2**30:,.1f} GiB of memory are free"
    if needed > left:
        yield fault("memory-low", f"{said}; a full replay takes {needed / 2**30:,.1f} GiB: {' and '.join(parts)}")
    else:
        yield ok(f"{said}, {needed / 2**30:,.2g} GiB are enough for a full replay" if needed else said)


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
        yield fault(
            "too-few-files",
            f"a process may open {allowed} files; {why} needs up to {needed}",
            f"ulimit -n {2 * needed}",
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
    yield judge(f"{free / 2**20:,.0f} MiB are free in {folder}", (free < _LEAST_SHARED_BYTES, "shared-memory-low"))


def crowd(config: Config, *, number_of_cores: int) -> Iterator[Finding]:
    """Compare the processes of a run with the cores that this process may use."""
    workers = 0
    if config.env.pool == "subproc":
        workers = AGENT.count(config) * (config.env.num_workers or min(number_of_cores, config.env.num_envs))
    processes = sum(role.count(config) for role in (LEARNER, PARAMETER_SERVER, AGENT, EVAL)) + workers
    is_crowd = processes > _CROWD * number_of_cores + 1
    yield judge(f"{processes} processes on {number_of_cores} core(s)", (is_crowd, "few-cores"))
