"""Environments that are elsewhere: the spaces that a configuration writes down for them, and whose its wrappers are."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.errors import ConfigError, EnvError
from surreal.config import Config
from surreal.config.schema.environment import EnvConfig
from surreal.config.schema.fields import BoxSpace, DictSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace, Space
from surreal.envs import WrapperSpec
from surreal.rlx.pool.ranges import ValueLimits
from surreal.rlx.pool.wrapping import RemoteWrappers, check_remote


class EnvSpaces(NamedTuple):
    """Spaces of an environment."""

    observation: gymnasium.Space[Any] | None  #: None: states of any form
    action: gymnasium.Space[Any]


def explicit_spaces(env: EnvConfig) -> EnvSpaces | None:
    """Return the spaces that are written down; None if there are none."""
    if env.action_space is None:
        return None
    observation = env.observation_space
    made = None if observation is None or observation == "raw" else make_space(observation)
    return EnvSpaces(made, make_space(env.action_space))


def make_space(section: Space) -> gymnasium.Space[Any]:
    """Make a space of its description."""
    if isinstance(section, BoxSpace):
        return _box(section)
    if isinstance(section, DiscreteSpace):
        return spaces.Discrete(section.n, start=section.start)
    if isinstance(section, MultiDiscreteSpace):
        return spaces.MultiDiscrete(section.nvec)
    if isinstance(section, MultiBinarySpace):
        return spaces.MultiBinary(section.n)
    if isinstance(section, DictSpace):
        return spaces.Dict({name: make_space(child) for name, child in section.spaces.items()})
    return spaces.Tuple([make_space(child) for child in section.spaces])


def wrapper_specs(config: Config) -> list[WrapperSpec]:
    """List all wrappers, the innermost first."""
    return [
        WrapperSpec(wrapper.name or wrapper.class_path or "", dict(wrapper.args), wrapper.training_only)
        for wrapper in config.env.wrappers
    ]


def client_specs(config: Config) -> list[WrapperSpec]:
    """List the wrappers that RLX clients apply, the innermost ones."""
    return wrapper_specs(config)[: _num_on_client(config)]


def remote_wrappers(config: Config, found: EnvSpaces, *, training: bool = True) -> RemoteWrappers | None:
    """Make the wrappers that an RLX server applies; None: there are none.

    Args:
        config: config of the run.
        found: spaces of the environments as clients know them.
        training: False leaves out the wrappers that are for training only.

    Raises:
        ConfigError: one of them cannot be applied by a server, or does not take these spaces.
    """
    specs = wrapper_specs(config)[_num_on_client(config) :]
    if not specs or found.observation is None:
        return None
    check_wrappers(config, training=training)
    try:
        limits = value_limits(config)
        return RemoteWrappers(specs, found.observation, found.action, training=training, limits=limits)
    except EnvError as error:
        raise _config_error(config, "env.wrappers", error) from error


def check_wrappers(config: Config, *, training: bool = True) -> None:
    """Check the wrappers that an RLX server applies, as far as that is possible before anything is made.

    Raises:
        ConfigError: one of them has to be at the environment itself, or does not exist.
    """
    for index, spec in enumerate(wrapper_specs(config)):
        if index >= _num_on_client(config) and (training or not spec.is_training_only):
            try:
                check_remote(spec)
            except EnvError as error:
                raise _config_error(config, f"env.wrappers.{index}", error) from error


def value_limits(config: Config) -> ValueLimits:
    """Return the limits on numbers that clients send."""
    rlx = config.rlx
    return ValueLimits(rlx.largest_state, rlx.largest_reward, keeps_bounds=rlx.outside_bounds == "refuse")


def _num_on_client(config: Config) -> int:
    return sum(wrapper.on_client for wrapper in config.env.wrappers)


def _config_error(config: Config, key: str, error: EnvError) -> ConfigError:
    source = config.source_of(key)
    return ConfigError(f"{key}: {error}{f' ({source})' if source else ''}", key=key, source=source)


def _box(section: BoxSpace) -> spaces.Box:
    dtype = np.dtype(section.dtype)
    low: float
    high: float
    if dtype.kind == "f":
        low, high = -np.inf, np.inf
    elif dtype.kind == "b":
        low, high = 0, 1
    else:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    low = low if section.low is None else section.low
    high = high if section.high is None else section.high
    return spaces.Box(low, high, tuple(section.shape), dtype.type)
