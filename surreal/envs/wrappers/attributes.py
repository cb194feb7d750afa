"""Attributes of environments that callbacks of a run set: a curriculum, for instance."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

from surreal.base.errors import EnvError
from surreal.config.problems import nearest


class FollowAttributes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sets attributes of an environment, as a file has them, when an episode begins.

    The process of the environment sees a file that another process has replaced, so this works wherever it runs.

    Args:
        path: JSON file of names and values.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], path: Path) -> None:
        super().__init__(env)
        self._file = _AttributesFile(path)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        set_attributes(self.env, self._file.news())
        return self.env.reset(seed=seed, options=options)


class FollowVectorAttributes(VectorWrapper[Any, Any, Any, Any, Any]):
    """Sets attributes of a vector environment, as a file has them, when an episode of any of its environments is over.

    A value is for all of its environments at once, because most vector environments keep one value for all.

    Args:
        path: JSON file of names and values.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], path: Path) -> None:
        super().__init__(env)
        self._file = _AttributesFile(path)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        set_attributes(self.env, self._file.news())
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        step = self.env.step(actions)
        if step[2].any() or step[3].any():
            set_attributes(self.env, self._file.news())
        return step


class _AttributesFile:
    """A JSON file that another process replaces."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None

    def news(self) -> dict[str, Any]:
        """Return its names and values; none if it is the file that was read last."""
        found = os.stat(self._path)
        if (seen := (found.st_ino, found.st_mtime_ns)) == self._seen:
            return {}
        self._seen = seen
        values: dict[str, Any] = json.loads(self._path.read_bytes())
        return values


def set_attributes(env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any], values: Mapping[str, Any]) -> None:
    """Set attributes of the outermost wrapper that has them; raises `EnvError` for those that cannot be set."""
    base = env.unwrapped
    if isinstance(base, SyncVectorEnv):
        for single in base.envs:
            set_attributes(single, values)
        return
    for name, value in values.items():
        if isinstance(base, AsyncVectorEnv):
            _set_in_processes(base, name, value)
            continue
        layer = next((layer for layer in _layers(env) if name in _attributes(layer)), None)
        if layer is None:
            raise _missing(base, name, [known for layer in _layers(env) for known in _attributes(layer)])
        setattr(layer, name, value)


def _set_in_processes(envs: AsyncVectorEnv, name: str, value: Any) -> None:
    is_data = not name.startswith("_") and name not in _OWN and not hasattr(gymnasium.Wrapper, name)
    if not (is_data and all(envs.call("has_wrapper_attr", name))):
        raise _missing(envs, name, [])
    envs.set_attr(name, [value] * envs.num_envs)


def _missing(base: object, name: str, known: list[str]) -> EnvError:
    similar = nearest(name, known)
    hint = f"; did you mean {similar}?" if similar else ""
    return EnvError(f"{base.__class__.__name__} has no attribute {name} that a callback may set{hint}")


def _layers(env: Any) -> Iterator[Any]:
    """The environment and all that it wraps, the outermost first."""
    yield env
    while isinstance(env, gymnasium.Wrapper | VectorWrapper):
        env = env.env
        yield env


def _attributes(layer: object) -> list[str]:
    """The names of a layer's public attributes that hold data."""
    cls = type(layer)
    properties = (name for name in dir(cls) if isinstance(getattr(cls, name, None), property))
    names = [*vars(layer), *(name for name in properties if getattr(cls, name).fset)]
    return [name for name in names if not name.startswith("_") and name not in _OWN]


#: Attributes of every environment or wrapper that are part of its interface.
_OWN = {"env", "action_space", "observation_space", "metadata", "spec", "render_mode", "np_random", "np_random_seed"}
_OWN |= {"num_envs", "single_action_space", "single_observation_space"}
