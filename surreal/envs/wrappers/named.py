"""Wrappers of gymnasium environments by name, as in a configuration; the first one is closest to the environment.

wrappers:
  - name: atari                  # no-ops, skipped frames, small gray frames
  - name: reward_clip            # -1..1, in training only
  - class: my_package.my_module.MyWrapper
    args: {strength: 2}
    training_only: true
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium import wrappers as gym_wrappers

from surreal.base.errors import EnvError
from surreal.envs.atari.preprocessing import AtariPreprocessing, LifeLoss
from surreal.envs.wrappers.intervention import Intervention
from surreal.envs.wrappers.observations import ChannelsFirst, GrayImage, MiniGridOneHot, ObsClip, ObsEntries, ObsScale
from surreal.envs.wrappers.steps import LastStep, RewardClip, RewardScale, RewardSign, Stagger

AnyEnv = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class WrapperSpec:
    """One wrapper of an environment."""

    name: str  #: one of `wrapper_names()`, or the import path of a class whose first argument is the environment
    args: Mapping[str, Any] = field(default_factory=dict)  #: its other arguments
    #: omit it in evaluation; None omits wrappers that change rewards or shorten episodes, except `time_limit`
    training_only: bool | None = None

    @property
    def is_training_only(self) -> bool:
        """Whether evaluation omits it."""
        return self.name in _TRAINING_ONLY if self.training_only is None else self.training_only


_WRAPPERS: dict[str, Callable[..., AnyEnv]] = {
    "atari": AtariPreprocessing,
    "channels_first": ChannelsFirst,
    "clip_action": gym_wrappers.ClipAction,
    "flatten": gym_wrappers.FlattenObservation,
    "gray_image": GrayImage,
    "intervention": Intervention,
    "last_step": LastStep,
    "life_loss": LifeLoss,
    "minigrid": MiniGridOneHot,
    "obs_clip": ObsClip,
    "obs_entries": ObsEntries,
    "obs_scale": ObsScale,
    "rescale_action": gym_wrappers.RescaleAction,
    "reward_clip": RewardClip,
    "reward_scale": RewardScale,
    "reward_sign": RewardSign,
    "stagger": Stagger,
    "time_limit": gym_wrappers.TimeLimit,
}
_TRAINING_ONLY = frozenset({"intervention", "life_loss", "reward_clip", "reward_scale", "reward_sign", "stagger"})


def wrapper_names() -> tuple[str, ...]:
    """List the wrappers with names."""
    return tuple(_WRAPPERS)


def apply_wrappers(env: AnyEnv, specs: Sequence[WrapperSpec], *, training: bool) -> AnyEnv:
    """Put wrappers around an environment; raises `EnvError` if a wrapper does not exist, or refuses its arguments."""
    for spec in select_wrappers(specs, training=training):
        factory = find_wrapper(spec.name)
        _check_args(factory, env, spec)
        try:
            wrapped = factory(env, **spec.args)
        except (ValueError, TypeError, AssertionError) as error:
            raise EnvError(f"wrapper {spec.name} refuses {env}: {error or type(error).__name__}") from error
        if not isinstance(wrapped, gymnasium.Env):
            raise EnvError(f"wrapper {spec.name} made a {type(wrapped).__name__}, not a gymnasium environment")
        env = wrapped
    return env


def select_wrappers(specs: Sequence[WrapperSpec], *, training: bool) -> list[WrapperSpec]:
    """Select the wrappers of training or evaluation."""
    return [spec for spec in specs if training or not spec.is_training_only]


def _check_args(factory: Callable[..., AnyEnv], env: AnyEnv, spec: WrapperSpec) -> None:
    try:
        signature = inspect.signature(factory)
    except ValueError:
        return  # written in C
    try:
        signature.bind(env, **spec.args)
    except TypeError as error:
        raise EnvError(f"wrapper {spec.name} does not take the arguments {dict(spec.args)}: {error}") from error


def find_wrapper(name: str) -> Callable[..., AnyEnv]:
    """Find a wrapper by its name or import path."""
    if name in _WRAPPERS:
        return _WRAPPERS[name]
    module_name, separator, attribute = name.replace(":", ".").rpartition(".")
    if not separator:
        near = difflib.get_close_matches(name, _WRAPPERS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(_WRAPPERS)}, or give an import path"
        raise EnvError(f"wrapper {name!r} does not exist; {hint}")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise EnvError(f"wrapper {name} cannot be imported: {error}") from error
    if not callable(found):
        raise EnvError(f"wrapper {name} is a {type(found).__name__}, not a class or function")
    factory: Callable[..., AnyEnv] = found
    return factory
