"""Environments, their spaces and their pools, from a configuration."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector.utils import batch_space

from surreal.config import Config
from surreal.envs import EnvPool, LocalEnvPool, SubprocEnvPool, make_env, make_vector_env
from surreal.envs.actions import ActionAdapter
from surreal.envs.pools.base import describe_observations
from surreal.main.build.wrapping import remote_wrappers, wrapper_specs
from surreal.main.build.written_spaces import EnvSpaces, explicit_spaces
from surreal.specs import ObsSpec


class Spaces(NamedTuple):
    """What a model needs to know of an environment."""

    obs_spec: ObsSpec | None  #: None: states of any form, as RLX clients send them
    action_space: gymnasium.Space[Any]  #: as agents see it: flat, discrete actions counted from 0


def build_env(config: Config, *, training: bool, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make one environment; evaluation's has other arguments and none of the wrappers that are for training only."""
    env_id, kwargs = config.env.id, dict(config.env.kwargs)
    if not training:
        env_id = config.eval.env_id or env_id
        kwargs |= config.eval.env_kwargs
    return make_env(
        env_id,
        kwargs=kwargs,
        wrappers=wrapper_specs(config),
        frame_stack=config.env.frame_stack,
        training=training,
        render_mode=render_mode,
    )


def build_spaces(config: Config, *, training: bool = True) -> Spaces:
    """Give the spaces that are written down, or find them out by making an environment.

    Args:
        config: of the run.
        training: whether wrappers for training only are to be checked as well.
    """
    given = written_spaces(config, training=training)
    if given is not None:
        obs_spec = None if given.observation is None else describe_observations(given.observation)
        return Spaces(obs_spec, ActionAdapter(given.action).space)
    env = build_env(config, training=True)
    try:
        return env_spaces(env)
    finally:
        env.close()


def written_spaces(config: Config, *, training: bool = False) -> EnvSpaces | None:
    """Give the spaces that are written down, behind the wrappers and the stacking of frames; None if there are none."""
    given = explicit_spaces(config.env)
    if given is None or given.observation is None:
        return given
    wrappers = remote_wrappers(config, given, training=training)
    observation, action = given.observation, given.action
    if wrappers is not None:
        observation, action = wrappers.observation_space, wrappers.action_space
    stack = config.env.frame_stack
    return EnvSpaces(observation if stack == 1 else batch_space(observation, stack), action)


def env_spaces(env: gymnasium.Env[Any, Any]) -> Spaces:
    """Describe an environment's spaces as agents see them."""
    return Spaces(describe_observations(env.observation_space), ActionAdapter(env.action_space).space)


def build_pool(config: Config, *, index: int) -> EnvPool:
    """Make the environments of agent number `index`."""
    env, seed = config.env, (config.seed, 1, index)
    if env.pool == "vector":
        vector = make_vector_env(
            env.id, env.num_envs, kwargs=env.kwargs, wrappers=wrapper_specs(config), frame_stack=env.frame_stack
        )
        return LocalEnvPool(vector, seed=seed)
    # A partial, not a lambda: worker processes are spawned, and get it by pickle.
    make = partial(make_env, env.id, kwargs=env.kwargs, wrappers=wrapper_specs(config), frame_stack=env.frame_stack)
    factories: list[Any] = [make] * env.num_envs
    if config.agent.show_ui:
        factories[0] = partial(make, render_mode="human")
    if env.pool == "subproc":
        return SubprocEnvPool(factories, num_workers=env.num_workers, seed=seed, on_error=env.on_error)
    return LocalEnvPool(factories, seed=seed, on_error=env.on_error)
