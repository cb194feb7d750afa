"""Installed packages and programs that a run needs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from packaging.requirements import Requirement

from surreal import __version__
from surreal.base.errors import RedisUnavailableError
from surreal.base.system.program import DISTRIBUTION, install_command
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.embedded import MIN_MAXMEMORY_BYTES, EmbeddedRedis
from surreal.distributed.server.files import find_redis_server
from surreal.envs.ids import extra_of
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.machine import faults

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
        yield faults.NOT_INSTALLED.found(f"there is no distribution {DISTRIBUTION} here")
        return
    count = 0
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            found = version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield faults.PACKAGE.found(f"{requirement.name} is not installed", f'pip install "{_plain(requirement)}"')
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            count -= 1
            yield faults.PACKAGE.found(
                f"{requirement.name} is {found}, not {requirement.specifier}", f'pip install "{_plain(requirement)}"'
            )
    yield ok(f"{count} packages are of versions that Surreal is made for")


def has_module(name: str) -> bool:
    """Whether a module can be imported."""
    return find_spec(name) is not None


def extras(config: Config, *, is_there: Callable[[str], bool] = has_module) -> Iterator[Finding]:
    """Check the extras that a configuration needs."""
    needed = needed_extras(config)
    for extra, why in needed.items():
        if not is_there(MODULES[extra]):
            yield faults.EXTRA.found(f"{why} needs {MODULES[extra]}, which is not installed", install_command(extra))
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
        yield faults.NO_SERVER.found(str(error).partition(";")[0])
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
        yield faults.SERVER_FAILS.found(" ".join(str(error).split()))
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
        yield faults.NO_CUDA.found(f"{len(there)} GPU(s) are here, but torch {torch.__version__} can use none")
    else:
        yield ok(f"torch {torch.__version__}, {', '.join(found) or 'without a GPU'}")


def compiler(*, variables: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Look for the C++ compiler that compiled updates need."""
    name = variables.get("CXX", "g++")
    if (path := shutil.which(name, path=variables.get("PATH"))) is None:
        yield faults.NO_COMPILER.found(f"there is no {name} on $PATH")
    else:
        yield ok(f"updates can be compiled by {path}")


def threads(
    *, cores: int, variables: Mapping[str, str] = os.environ, number: Callable[[], int] = torch.get_num_threads
) -> Iterator[Finding]:
    """Compare the threads that torch uses in a process with the cores that it may use."""
    asked, count = variables.get("OMP_NUM_THREADS", ""), number()
    if count > cores:
        yield faults.THREADS.found(
            f"torch takes {count} threads, but there are {cores} cores; $OMP_NUM_THREADS is {asked!r}"
        )
    else:
        yield ok(f"{cores} core(s); $OMP_NUM_THREADS is {asked or 'not set, so a run gives each process one thread'}")
