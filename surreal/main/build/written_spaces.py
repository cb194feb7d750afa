"""Spaces that a configuration writes down (`env.observation_space`, `env.action_space`), as gymnasium's."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.config.schema.env import EnvConfig
from surreal.config.schema.spaces import BoxSpace, DictSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace, Space


class EnvSpaces(NamedTuple):
    """What an environment shows and takes."""

    observation: gymnasium.Space[Any] | None  #: None: states of any form
    action: gymnasium.Space[Any]


def explicit_spaces(env: EnvConfig) -> EnvSpaces | None:
    """Give the spaces that are written down; None if there are none."""
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
