"""Attributes of environments that callbacks of a run set: a curriculum, for instance."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium

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
        self._path = path
        self._seen: tuple[int, int] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        found = os.stat(self._path)
        if (seen := (found.st_ino, found.st_mtime_ns)) != self._seen:
            set_attributes(self.env, json.loads(self._path.read_bytes()))
            self._seen = seen
        return self.env.reset(seed=seed, options=options)


def set_attributes(env: gymnasium.Env[Any, Any], values: Mapping[str, Any]) -> None:
    """Set attributes of an environment, or of the outermost wrapper that has them.

    Raises:
        EnvError: there is no such attribute, or it is private or a method; names the most similar one.
    """
    for name, value in values.items():
        known = _attributes(env)
        if name not in known:
            similar = nearest(name, known)
            hint = f"; did you mean {similar}?" if similar else ""
            raise EnvError(f"{env.unwrapped.__class__.__name__} has no attribute {name} that a callback may set{hint}")
        env.set_wrapper_attr(name, value, force=False)


def _attributes(env: gymnasium.Env[Any, Any]) -> list[str]:
    """The names of all public attributes that hold data."""
    found: dict[str, None] = {}
    layer: Any = env
    while True:
        found |= dict.fromkeys(name for name in vars(layer) if not name.startswith("_"))
        cls = type(layer)
        properties = (name for name in dir(cls) if isinstance(getattr(cls, name, None), property))
        found |= dict.fromkeys(name for name in properties if getattr(cls, name).fset and not name.startswith("_"))
        if not isinstance(layer, gymnasium.Wrapper):
            return [name for name in found if name not in _OWN]
        layer = layer.env


#: Attributes of every environment or wrapper that are part of its interface.
_OWN = {"env", "action_space", "observation_space", "metadata", "spec", "render_mode", "np_random", "np_random_seed"}
