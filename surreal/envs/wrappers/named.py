"""Wrappers of gymnasium environments by name, as a configuration lists them.

    wrappers:
      - name: atari                  # no-ops, skipped frames, small gray frames
      - name: reward_clip            # -1..1, while training only
      - class: my_package.my_module.MyWrapper
        args: {strength: 2}
        training_only: true

They are applied in the order of the list, the first one closest to the environment.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import wrappers as gym_wrappers

from surreal.base.errors import EnvError
from surreal.envs.atari.preprocessing import AtariPreprocessing, LifeLoss
from surreal.envs.wrappers.entries import ObsEntries
from surreal.envs.wrappers.images import ChannelsFirst, GrayImage
from surreal.envs.wrappers.last_step import LastStep
from surreal.envs.wrappers.minigrid import MiniGridOneHot

AnyEnv = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class WrapperSpec:
    """One wrapper of an environment.

    Attributes:
        name: one of `wrapper_names()`, or the import path of a class that takes the environment first.
        args: its other arguments.
        training_only: left out of evaluation; None asks the wrapper: those that change rewards or cut episodes
            short are, others (and `time_limit`) are not.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    training_only: bool | None = None

    @property
    def is_training_only(self) -> bool:
        """Whether evaluation does without it."""
        return self.name in _TRAINING_ONLY if self.training_only is None else self.training_only


class ObsClip(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Clips observations into -limit..limit, for environments whose `Box` of floats has no bounds, or far ones.

    Args:
        env: what it is put around.
        limit: largest magnitude, > 0; raising it keeps more of what is rare, and lets it weigh more. NaN stays NaN.
    """

    def __init__(self, env: AnyEnv, limit: float = 10.0) -> None:
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or space.dtype is None or space.dtype.kind != "f":
            raise ValueError(f"its observations are {space}; only a Box of floats can be clipped")
        if not 0 < limit < np.inf:
            raise ValueError(f"limit is {limit}; it must be > 0 and finite")
        super().__init__(env)
        low, high = np.clip(space.low, -limit, limit), np.clip(space.high, -limit, limit)
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        """Clip it."""
        box: Any = self.observation_space
        return np.clip(observation, box.low, box.high)


class ObsScale(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Multiplies observations by `scale`.

    Args:
        env: what it is put around.
        scale: factor other than 0, or one for each component; pick such that all are near 1, as networks want them.
    """

    def __init__(self, env: AnyEnv, scale: float | Sequence[float]) -> None:
        space, factor = env.observation_space, np.asarray(scale)
        if not isinstance(space, gymnasium.spaces.Box) or space.dtype is None or space.dtype.kind != "f":
            raise ValueError(f"its observations are {space}; only a Box of floats can be scaled")
        if factor.dtype.kind not in "iuf" or not np.isfinite(factor).all() or not factor.all():
            raise ValueError(f"scale is {scale}; it must be finite numbers other than 0")
        self._scale = np.broadcast_to(factor, space.shape).astype(space.dtype)
        super().__init__(env)
        ends = space.low * self._scale, space.high * self._scale
        self.observation_space = gymnasium.spaces.Box(np.minimum(*ends), np.maximum(*ends), dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        """Scale it."""
        return observation * self._scale


class RewardClip(gymnasium.RewardWrapper[Any, Any]):
    """Clips rewards into low..high.

    Args:
        env: what it is put around.
        low: least reward, <= `high`; anything below becomes this.
        high: largest reward; raising it keeps more of the difference between rewards, and lets large ones weigh more.
    """

    def __init__(self, env: AnyEnv, low: float = -1.0, high: float = 1.0) -> None:
        if not low <= high:
            raise ValueError(f"low is {low}, high is {high}; low must not be larger")
        super().__init__(env)
        self._low, self._high = float(low), float(high)

    def reward(self, reward: SupportsFloat) -> float:
        """Clip it."""
        return min(max(float(reward), self._low), self._high)


class RewardScale(gymnasium.RewardWrapper[Any, Any]):
    """Multiplies rewards by `scale`.

    Args:
        env: what it is put around.
        scale: factor; pick one that brings returns near 1, where learning rates and losses work as usual.
    """

    def __init__(self, env: AnyEnv, scale: float) -> None:
        super().__init__(env)
        self._scale = float(scale)

    def reward(self, reward: SupportsFloat) -> float:
        """Scale it."""
        return float(reward) * self._scale


class RewardSign(gymnasium.RewardWrapper[Any, Any]):
    """Keeps only the sign of rewards, as DQN does for Atari (Mnih et al. 2015)."""

    def reward(self, reward: SupportsFloat) -> float:
        """Return -1, 0 or 1."""
        return float(np.sign(float(reward)))


class Stagger(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts the first episode short, at random: the environments of an agent then are at different steps of theirs.

    Where every episode has the same length, short trajectories would otherwise all be of its beginning, then all of its
    middle, and so on, and each update would forget what the last ones were about.

    Args:
        env: what it is put around.
        steps: of the longest first episode, >= 1: the length of an episode spreads them evenly.
    """

    def __init__(self, env: AnyEnv, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"steps is {steps}; it must be >= 1")
        super().__init__(env)
        self._steps = steps
        self._left = 0
        self._has_begun = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; of the first one, choose where it is cut, by the environment's own seed."""
        found = super().reset(seed=seed, options=options)
        # dm_control brings an old RandomState, which has `random` but not `integers`.
        self._left = 0 if self._has_begun else 1 + int(self.np_random.random() * self._steps)
        return found

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step; the last one of a first episode truncates it."""
        obs, reward, terminated, truncated, info = super().step(action)
        self._has_begun = True
        if self._left:
            self._left -= 1
            truncated = truncated or self._left == 0
        return obs, reward, terminated, truncated, info


_WRAPPERS: dict[str, Callable[..., AnyEnv]] = {
    "atari": AtariPreprocessing,
    "channels_first": ChannelsFirst,
    "clip_action": gym_wrappers.ClipAction,
    "flatten": gym_wrappers.FlattenObservation,
    "gray_image": GrayImage,
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
_TRAINING_ONLY = frozenset({"life_loss", "reward_clip", "reward_scale", "reward_sign", "stagger"})


def wrapper_names() -> tuple[str, ...]:
    """List the wrappers that have a name."""
    return tuple(_WRAPPERS)


def apply_wrappers(env: AnyEnv, specs: Sequence[WrapperSpec], *, training: bool) -> AnyEnv:
    """Put wrappers around an environment.

    Args:
        env: the innermost environment.
        specs: the wrappers, the innermost first.
        training: False leaves out what is for training only.

    Raises:
        EnvError: a wrapper does not exist, or does not take its arguments.
    """
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
    """Choose the wrappers that training, or evaluation, has."""
    return [spec for spec in specs if training or not spec.is_training_only]


def _check_args(factory: Callable[..., AnyEnv], env: AnyEnv, spec: WrapperSpec) -> None:
    try:
        signature = inspect.signature(factory)
    except ValueError:
        return  # written in C, it checks by itself
    try:
        signature.bind(env, **spec.args)
    except TypeError as error:
        raise EnvError(f"wrapper {spec.name} does not take the arguments {dict(spec.args)}: {error}") from error


def find_wrapper(name: str) -> Callable[..., AnyEnv]:
    """Find a wrapper by its name or its import path.

    Raises:
        EnvError: there is none.
    """
    if name in _WRAPPERS:
        return _WRAPPERS[name]
    module_name, separator, attribute = name.replace(":", ".").rpartition(".")
    if not separator:
        near = difflib.get_close_matches(name, _WRAPPERS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_WRAPPERS)}, or give an import path"
        raise EnvError(f"wrapper {name!r} does not exist; {hint}")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise EnvError(f"wrapper {name} cannot be imported: {error}") from error
    if not callable(found):
        raise EnvError(f"wrapper {name} is a {type(found).__name__}, not a class or function")
    factory: Callable[..., AnyEnv] = found
    return factory
