"""Ids of environments: the packages that register them, their extras, and classes instead of ids.

CartPole-v1         gymnasium's own
ALE/Pong-v5         of a package that is known here: it is imported first
my_package:My-v0    registered when `my_package` is imported
my_module:MyEnv     a class, or a function, that gives an environment
"""

from __future__ import annotations

import difflib
import importlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from ctypes.util import find_library
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import error as gym_error
from gymnasium.envs.registration import EnvSpec, load_env_creator

from surreal.base.errors import EnvError
from surreal.base.system.program import install_command
from surreal.envs.atari.preprocessing import is_atari, load_ale

logger = logging.getLogger(__name__)


class Family(NamedTuple):
    """Environments that one package registers."""

    extra: str  #: of ours, which brings the package
    marks: tuple[str, ...]  #: what an id, an entry point or an error has in it
    starts: tuple[str, ...] = ()  #: how ids begin that exist only once the package is imported
    package: str = ""  #: what registers them


_FAMILIES = (
    Family("atari", ("ALE/", "ale_py"), ("ALE/",), "ale_py"),
    Family("box2d", ("box2d",)),
    Family("dm-control", ("dm_control", "shimmy"), ("dm_control/",), "shimmy"),
    Family("minigrid", ("MiniGrid", "minigrid", "BabyAI"), ("MiniGrid-", "BabyAI-"), "minigrid"),
    # Before MuJoCo, which its entry points name too.
    Family(
        "robotics",
        ("gymnasium_robotics",),
        ("Fetch", "HandReach", "HandManipulate", "AntMaze", "PointMaze", "FrankaKitchen", "Adroit"),
        "gymnasium_robotics",
    ),
    Family("mujoco", ("mujoco",)),
    Family("vizdoom", ("vizdoom", "Vizdoom"), ("Vizdoom",), "vizdoom.gymnasium_wrapper"),
)


def find_env(env_id: str) -> EnvSpec:
    """Find the function that makes an environment; the package that registers it is imported. Raises `EnvError` if the
    module has nothing of this name, `ImportError` if it is missing, and gymnasium's `Error` if there is no such id.
    """
    module_name, _, name = env_id.rpartition(":")
    if not module_name:
        load_plugins()
        _load_family(env_id)
        return gymnasium.spec(env_id)
    module = importlib.import_module(module_name)
    found = getattr(module, name, None)
    if callable(found) and name not in gymnasium.registry:
        return EnvSpec(id=env_id, entry_point=found)
    try:
        return gymnasium.spec(name)
    except gym_error.Error as error:
        if "-v" in name:
            raise
        makers = [other for other, value in vars(module).items() if callable(value)]
        near = difflib.get_close_matches(name, makers, n=1)
        hint = f"; did you mean {module_name}:{near[0]}?" if near else ""
        raise EnvError(
            f"environment {env_id!r} does not exist: {module.__file__ or module_name} has no class or function {name}, "
            f"and registers no such id{hint}"
        ) from error


@cache
def load_plugins() -> None:
    """Import the modules that other packages name in the entry point group `surreal.environments`, once.

    A module that cannot be imported is a warning: its environments are missing, and all others work.
    """
    for entry in {entry.value: entry for entry in entry_points(group="surreal.environments")}.values():
        try:
            entry.load()
        except Exception as error:
            logger.warning("the environments of %s are missing: %s: %s", entry.value, type(error).__name__, error)


def render_modes(env_id: str) -> Sequence[str]:
    """List the ways in which an environment can be drawn, as its class says; none where that is not known."""
    try:
        maker: Any = find_env(env_id).entry_point
        maker = load_env_creator(maker) if isinstance(maker, str) else maker
    except (EnvError, ImportError, gym_error.Error):  # `make_env` reports it
        return ()
    modes: Sequence[str] = getattr(maker, "metadata", {}).get("render_modes", ())
    return modes


def extra_of(env_id: str, what: object = "") -> str | None:
    """Name the extra that an environment needs, where one is known; `what` is a text that names the package."""
    try:
        entry_point = str(gymnasium.spec(env_id).entry_point)
    except gym_error.Error:
        entry_point = ""
    text = f"{env_id} {entry_point} {what}".replace("Box2D", "box2d").replace("MuJoCo", "mujoco")
    return next((each.extra for each in _FAMILIES if text.startswith(each.starts) or _is_in(text, each.marks)), None)


def _is_in(text: str, marks: Sequence[str]) -> bool:
    return any(mark in text for mark in marks)


def missing_package(env_id: str, what: object) -> EnvError | None:
    """Build the error that names the extra an environment needs, if one is known; arguments as in `extra_of`."""
    extra = extra_of(env_id, what)
    if extra is None:
        return None
    return EnvError(f"{env_id} needs a package that is not installed; run: {install_command(extra)}")


def nearest_env_id(env_id: str) -> str | None:
    """Find the registered id most like a misspelt one, the newest version of it."""
    # Only names are compared, because `-v1` alone would make short ids alike; the last of equal names counts.
    namespace = env_id.rpartition("/")[0]
    specs = sorted(gymnasium.registry.values(), key=lambda spec: ((spec.namespace or "") == namespace, _version(spec)))
    ids = {_bare(spec.id): spec.id for spec in specs}
    near = difflib.get_close_matches(_bare(env_id), ids, n=1, cutoff=0.7)
    return ids[near[0]] if near else None


def _bare(env_id: str) -> str:
    """Return an id in lower case without its namespace and its version."""
    return re.sub(r"-v\d+$", "", env_id.rpartition("/")[2].lower())


def _load_family(env_id: str) -> None:
    family = next((family for family in _FAMILIES if family.starts and env_id.startswith(family.starts)), None)
    if family is None:
        return
    if find_spec(family.package.partition(".")[0]) is None:
        raise ImportError(f"No module named {family.package!r}")
    if is_atari(env_id):
        load_ale()
        return
    if family.extra == "dm-control":
        _choose_renderer()
    importlib.import_module(family.package)
    if family.extra == "robotics":
        _compare_joint_types()


def _compare_joint_types() -> None:
    """Make joint types equal NumPy's integers, which gymnasium-robotics 1.4 relies on and newer MuJoCo does not do."""
    joint_type = importlib.import_module("mujoco").mjtJoint
    if joint_type.mjJNT_SLIDE != np.int32(joint_type.mjJNT_SLIDE):
        joint_type.__eq__ = lambda one, other: int(one) == other


def _choose_renderer() -> None:
    """Choose a renderer that needs no display if there is none; otherwise MuJoCo would warn in every process."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl" if find_library("EGL") else "disable")


def _version(spec: EnvSpec) -> int:
    return spec.version if spec.version is not None else -1
