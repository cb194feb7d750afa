"""Sources of a configuration for `surreal.train`: a preset, a file, a dict, a `Config`, or an environment and the name
of an algorithm, which takes the settings of the preset for the most similar task.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error as gym_error
from gymnasium import spaces

from surreal.base.errors import ConfigError
from surreal.config import Config, preset_names, preset_path, to_yaml
from surreal.config.problems import nearest
from surreal.config.yaml_tree import parse, write
from surreal.envs import make_env
from surreal.envs.by_value import name_env
from surreal.envs.ids import find_env

Source = str | os.PathLike[str] | Mapping[str, Any] | Config | Callable[..., Any]

#: Kind of task -> tasks whose presets suit it, the most similar first: of few numbers, and of many.
_TASKS = {
    "images": (("atari",), ("atari",)),
    "discrete": (("cartpole", "acrobot", "lunarlander", "mountaincar"), ("lunarlander", "acrobot", "cartpole")),
    "continuous": (
        ("pendulum", "lunarlander-continuous", "halfcheetah", "hopper"),
        ("halfcheetah", "hopper", "lunarlander-continuous", "pendulum"),
    ),
}
#: Observations with more numbers than this count as many.
_FEW_NUMBERS = 4
#: Algorithms for every kind of action, so that their presets for discrete ones do for all.
_FOR_ALL_ACTIONS = ("pg", "a2c", "a3c", "ppo", "trpo", "vtrace", "appo")
_SIDE_OF_IMAGES = 84


def write_source(source: Source, algorithm: str | None, folder: Path) -> str:
    """Return a preset or a path as they are, and write anything else as a YAML file into a folder. Raises `ConfigError`
    if the algorithm is unknown, or does not suit the actions, `EnvError` if the environment cannot be made.
    """
    if hasattr(source, "reset") and not isinstance(source, type):
        name = type(source).__name__
        raise ConfigError(f'each process makes its own environments, so give the class: train({name}, "ppo")')
    if algorithm is None:
        if isinstance(source, Config):
            return _write(folder, source.name, to_yaml(source))
        if isinstance(source, Mapping):
            plain = {"version": 1, **source, "python_path": _from_here(source.get("python_path", []))}
            return _write(folder, str(source.get("name", "run")), write(plain))
        if callable(source) or _is_env(os.fspath(source)):
            name = source.__name__ if callable(source) else repr(os.fspath(source))
            raise ConfigError(f'{name} is an environment; name an algorithm as well: train({name}, "ppo")')
        return os.fspath(source)
    if isinstance(source, Config | Mapping) or not (callable(source) or isinstance(source, str)):
        raise ConfigError(
            f'an algorithm goes with an environment, not with a {type(source).__name__}: train("CartPole-v1", "ppo")'
        )
    plain = settings_for(source, algorithm.lower())
    return _write(folder, plain["name"], write(plain))


def settings_for(env: str | Callable[..., Any], algorithm: str) -> dict[str, Any]:
    """Choose settings for an environment, an id or a class or function that makes one, and an algorithm, the end of a
    preset's name: those of the preset for the most similar task, with this environment. Raises as `write_source`.

    A preset for exactly this id is taken unchanged. Otherwise its wrappers and its goal are left out; the goal is the
    environment's `reward_threshold`, if it is registered with one.
    """
    env_id, kwargs, folder = (env, {}, None) if isinstance(env, str) else name_env(env)
    presets = [name for name in preset_names() if name.endswith(f"-{algorithm}")]
    for name in presets:
        plain = _read(name)
        if plain["env"].get("id") == env_id:
            return plain
    with closing(env() if callable(env) else make_env(env_id)) as made:
        name = nearest_preset(algorithm, made.observation_space, made.action_space)
        threshold = made.spec.reward_threshold if made.spec is not None else None
    plain = _read(name)
    title = env_id.rpartition("/")[2] if isinstance(env, str) else env.__name__
    plain["name"] = f"{''.join(each if each.isalnum() else '-' for each in title).strip('-').lower()}-{algorithm}"
    if name.startswith("atari"):
        if not env_id.startswith("ALE/"):
            plain["env"] |= {"wrappers": [{"name": "gray_image", "args": {"shape": _SIDE_OF_IMAGES}}]}
        plain["env"] |= {"id": env_id, "kwargs": kwargs}
    else:
        plain["env"] = {"id": env_id, "kwargs": kwargs, "num_envs": plain["env"].get("num_envs", 1)}
    plain["run"]["stop_at_return"] = threshold
    plain["python_path"] = _from_here([] if folder is None else [folder])
    return plain


def nearest_preset(algorithm: str, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> str:
    """Find the preset of an algorithm for the most similar spaces; else, `ConfigError` names those for them."""
    is_box = isinstance(action, spaces.Box)
    has_one_action = isinstance(action, spaces.Discrete) or is_box
    if isinstance(observation, spaces.Box) and observation.dtype == np.uint8 and len(observation.shape) >= 2:
        kind = "images" if not is_box else "continuous"
    else:
        kind = "continuous" if is_box else "discrete"
    try:
        is_many = spaces.flatdim(observation) > _FEW_NUMBERS
    except (NotImplementedError, ValueError):
        is_many = True
    names = [name for name in preset_names() if not name.endswith("-rlx")]
    tasks = _TASKS[kind][is_many]
    offered = {
        name.removeprefix(f"{task}-"): name
        for task in reversed(tasks)
        for name in names
        if name.startswith(f"{task}-") and (has_one_action or name.endswith(_FOR_ALL_ACTIONS))
    }
    offered = {name: preset for name, preset in offered.items() if "-" not in name}
    if algorithm not in offered:
        known = {name.rpartition("-")[2] for name in names}
        similar = nearest(algorithm, sorted(known))
        shown = kind if has_one_action else f"{type(action).__name__} actions"
        why = f"has no preset for {shown if kind == 'images' or not has_one_action else shown + ' actions'}"
        if algorithm not in known:
            why = "is not an algorithm of Surreal" + (f" (did you mean {similar}?)" if similar else "")
        raise ConfigError(f"{algorithm} {why}; here you can take {', '.join(sorted(offered))}")
    return offered[algorithm]


def _from_here(folders: Sequence[str]) -> list[str]:
    """Return folders of modules, and this one: the file is written elsewhere."""
    return [str(Path(folder).resolve()) for folder in (*folders, ".")]


def _read(preset: str) -> dict[str, Any]:
    plain: dict[str, Any] = parse(preset_path(preset).read_text(encoding="utf-8"), preset)[0]
    return plain


def _write(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def _is_env(name: str) -> bool:
    """Whether a text is an environment's id, and neither a preset nor a file."""
    if name in preset_names() or Path(name).exists() or name.endswith((".yaml", ".yml")):
        return False
    try:
        find_env(name)
    except (ImportError, gym_error.Error, ConfigError, ValueError):
        return False
    return True
