"""Python, packages in the versions that Surreal is made for, and extras that a configuration needs."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from packaging.requirements import Requirement

from surreal import __version__
from surreal.base.system.program import DISTRIBUTION, install_command
from surreal.config import Config
from surreal.envs.ids import extra_of
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.machine.faults import EXTRA, NOT_INSTALLED, PACKAGE

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
    """Compare what is installed with what setup.py asks for.

    Args:
        requirements: gives those of a distribution.
        version: gives the version of one that is installed.
    """
    yield ok(f"Surreal {__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        wanted = [Requirement(text) for text in requirements(DISTRIBUTION) or []]
    except importlib.metadata.PackageNotFoundError:
        yield NOT_INSTALLED.found(f"there is no distribution {DISTRIBUTION} here")
        return
    count = 0
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            found = version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield PACKAGE.found(f"{requirement.name} is not installed", f'pip install "{_plain(requirement)}"')
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            count -= 1
            yield PACKAGE.found(
                f"{requirement.name} is {found}, not {requirement.specifier}", f'pip install "{_plain(requirement)}"'
            )
    yield ok(f"{count} packages are of versions that Surreal is made for")


def has_module(name: str) -> bool:
    """Whether a module can be imported."""
    return find_spec(name) is not None


def extras(config: Config, *, is_there: Callable[[str], bool] = has_module) -> Iterator[Finding]:
    """Find what a configuration needs beyond the plain installation.

    Args:
        config: of the run.
        is_there: whether a module can be imported.
    """
    needed = needed_extras(config)
    for extra, why in needed.items():
        if not is_there(MODULES[extra]):
            yield EXTRA.found(f"{why} needs {MODULES[extra]}, which is not installed", install_command(extra))
    if needed and all(is_there(MODULES[extra]) for extra in needed):
        yield ok(f"the configuration needs the extras {', '.join(needed)}, which are there")


def needed_extras(config: Config) -> dict[str, str]:
    """Give the extras that a configuration needs, with the setting that needs each."""
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
