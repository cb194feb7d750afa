"""Environments, their spaces and their pools, from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ObsSpec
from surreal.config import Config
from surreal.config.schema.environment import EnvConfig
from surreal.config.schema.fields import BoxSpace, DictSpace, DiscreteSpace, MultiBinarySpace, MultiDiscreteSpace, Space
from surreal.envs import (
    EnvPool,
    LocalEnvPool,
    SubprocEnvPool,
    ThreadedEnvPool,
    WrapperSpec,
    check_env_id,
    make_env,
    make_vector_env,
)
from surreal.envs.actions import ActionAdapter
from surreal.envs.players.base import Opponents, UniformGame
from surreal.envs.players.make import check_game, is_game, make_game
from surreal.envs.players.views import EveryPlayer, OnePlayer, find_player
from surreal.envs.pools.base import describe_observations
from surreal.envs.pools.game_pool import GamePool
from surreal.envs.pools.rate_pool import RatePool, safe_action_of
from surreal.envs.wrappers.attributes import FollowAttributes, FollowVectorAttributes
from surreal.rlx.pool.ranges import ValueLimits
from surreal.rlx.pool.wrapping import RemoteWrappers, check_remote
from surreal.run.build.construct import refused


class EnvSpaces(NamedTuple):
    """Spaces of an environment."""

    observation: gymnasium.Space[Any] | None  #: None: states of any form
    action: gymnasium.Space[Any]


class Spaces(NamedTuple):
    """Facts about an environment that a model needs."""

    obs_spec: ObsSpec | None  #: None: states of any form, as RLX clients send them
    action_space: gymnasium.Space[Any]  #: as agents see it: flat, discrete actions counted from 0


def build_env(config: Config, *, training: bool, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make one environment; evaluation's has other arguments and none of the wrappers that are for training only.

    A game of several players becomes the environment of one: who plays for all, or in self-play against the reference.
    """
    env_id, kwargs = config.env.id, dict(config.env.kwargs)
    if not training:
        env_id = config.eval.env_id or env_id
        kwargs |= config.eval.env_kwargs
    if is_game(env_id):
        game = _build_game(config, env_id, kwargs, render_mode)
        if not config.self_play.enabled:
            return EveryPlayer(game)
        return OnePlayer(game, find_player(config.self_play.reference, game.action_space))
    wrappers, stack = wrapper_specs(config), config.env.frame_stack
    return make_env(
        env_id, kwargs=kwargs, wrappers=wrappers, frame_stack=stack, training=training, render_mode=render_mode
    )


def build_spaces(config: Config, *, training: bool = True) -> Spaces:
    """Return the spaces that are written down, or find them out by making an environment."""
    return agent_spaces(find_spaces(config, training=training))


def find_spaces(config: Config, *, training: bool = True) -> EnvSpaces:
    """Return the environment's own spaces; arguments as for `build_spaces`."""
    if (given := written_spaces(config, training=training)) is not None:
        return given
    with closing(build_env(config, training=True)) as env:
        return EnvSpaces(env.observation_space, env.action_space)


def agent_spaces(spaces: EnvSpaces) -> Spaces:
    """Describe an environment's spaces as agents see them."""
    obs_spec = None if spaces.observation is None else describe_observations(spaces.observation)
    return Spaces(obs_spec, ActionAdapter(spaces.action).space)


def written_spaces(config: Config, *, training: bool = False) -> EnvSpaces | None:
    """Return the spaces that are written down, after wrappers and stacked frames; None if there are none."""
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
    return agent_spaces(EnvSpaces(env.observation_space, env.action_space))


def check_env(env_id: str) -> None:
    """Find an environment, or a game, without making it."""
    if is_game(env_id):
        check_game(env_id)
    else:
        check_env_id(env_id)


def build_pool(
    config: Config, *, index: int, opponents: Opponents | None = None, attributes: Path | None = None
) -> EnvPool:
    """Make the environments of agent number `index`, with opponents in self-play, or `FollowAttributes` of a file."""
    pool, rate_hz = _build_pool(config, index, opponents, attributes), config.env.rate_hz
    if rate_hz is None:
        return pool
    safe_action = check_safe_action(config, pool.action_space)
    env = config.env
    return RatePool(pool, rate_hz, safe_action, interventions=env.has_interventions, is_realtime=env.realtime)


def check_safe_action(config: Config, space: gymnasium.Space[Any]) -> NDArray[Any] | None:
    """Read `env.safe_action`; `space` as agents see it."""
    try:
        return safe_action_of(config.env.safe_action, space)
    except ValueError as error:
        raise refused(config, "env.safe_action", str(error)) from None


def _build_pool(config: Config, index: int, opponents: Opponents | None, attributes: Path | None) -> EnvPool:
    env, seed = config.env, (config.seed, 1, index)
    if is_game(env.id):
        return _build_game_pool(config, seed, opponents)
    made: dict[str, Any] = {"kwargs": env.kwargs, "wrappers": wrapper_specs(config), "frame_stack": env.frame_stack}
    if env.pool == "vector":
        vector = make_vector_env(env.id, env.num_envs, **made)
        return LocalEnvPool(vector if attributes is None else FollowVectorAttributes(vector, attributes), seed=seed)
    if env.pool == "envpool":
        with build_env(config, training=True) as single:
            observation_space, action_space = single.observation_space, single.action_space
        return ThreadedEnvPool(
            env.id,
            env.num_envs,
            observation_space=observation_space,
            action_space=action_space,
            **made,
            num_threads=env.num_workers,
            # A round needs the same number of steps of each environment.
            batch_size=None if config.agent.round_steps is None else env.num_envs,
            seed=seed,
        )
    # A partial, not a lambda: worker processes are spawned, and get it by pickle.
    make: Any = partial(make_env, env.id, **made)
    if attributes is not None:
        make = partial(_make_following, make, attributes)
    factories: list[Any] = [make] * env.num_envs
    if config.agent.show_ui:
        factories[0] = partial(make, render_mode="human")
    options: dict[str, Any] = {"seed": seed, "on_error": env.on_error, "interventions": env.has_interventions}
    if env.pool == "subproc":
        return SubprocEnvPool(factories, num_workers=env.num_workers, **options)
    return LocalEnvPool(factories, **options)


def _make_following(make: Callable[..., gymnasium.Env[Any, Any]], path: Path, **options: Any) -> FollowAttributes:
    return FollowAttributes(make(**options), path)


def _build_game_pool(config: Config, seed: tuple[int, ...], opponents: Opponents | None) -> GamePool:
    env = config.env
    make = partial(_build_game, config, env.id, env.kwargs)
    first = make("human" if config.agent.show_ui else None)
    factories = [partial(make, None)] * (env.num_envs // first.num_players)
    # The game that has told how many players there are is the first one of the pool.
    return GamePool(factories, seed=seed, opponents=opponents, on_error=env.on_error, first=first)


def _build_game(config: Config, env_id: str, kwargs: Mapping[str, Any], render_mode: str | None) -> UniformGame:
    game = make_game(env_id, kwargs=kwargs, player_id=config.env.player_id, render_mode=render_mode)
    players, slots = game.num_players, config.env.num_envs
    if config.self_play.enabled and players != 2:
        game.close()
        raise refused(config, "self_play.enabled", f"is true, but {env_id} has {players} players; self-play takes two")
    if slots % players:
        game.close()
        problem = f"is {slots}, but {env_id} has {players} players, and each is an environment; set it to a multiple of"
        raise refused(config, "env.num_envs", f"{problem} {players}")
    return game


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
        return gymnasium.spaces.Discrete(section.n, start=section.start)
    if isinstance(section, MultiDiscreteSpace):
        return gymnasium.spaces.MultiDiscrete(section.nvec)
    if isinstance(section, MultiBinarySpace):
        return gymnasium.spaces.MultiBinary(section.n)
    if isinstance(section, DictSpace):
        return gymnasium.spaces.Dict({name: make_space(child) for name, child in section.spaces.items()})
    return gymnasium.spaces.Tuple([make_space(child) for child in section.spaces])


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
    """Make the wrappers that an RLX server applies; None: there are none."""
    specs, limits = wrapper_specs(config)[_num_on_client(config) :], value_limits(config)
    if not specs or found.observation is None:
        return None
    check_wrappers(config, training=training)
    try:
        return RemoteWrappers(specs, found.observation, found.action, training=training, limits=limits)
    except EnvError as error:
        raise config.refusal("env.wrappers", f"env.wrappers: {error}") from error


def check_wrappers(config: Config, *, training: bool = True) -> None:
    """Check the wrappers that an RLX server applies, as far as that is possible before anything is made."""
    for index, spec in enumerate(wrapper_specs(config)):
        if index >= _num_on_client(config) and (training or not spec.is_training_only):
            try:
                check_remote(spec)
            except EnvError as error:
                key = f"env.wrappers.{index}"
                raise config.refusal(key, f"{key}: {error}") from error


def value_limits(config: Config) -> ValueLimits:
    """Return the limits on numbers that clients send."""
    rlx = config.rlx
    return ValueLimits(rlx.largest_state, rlx.largest_reward, keeps_bounds=rlx.outside_bounds == "refuse")


def _num_on_client(config: Config) -> int:
    return sum(wrapper.on_client for wrapper in config.env.wrappers)


def _box(section: BoxSpace) -> gymnasium.spaces.Box:
    dtype = np.dtype(section.dtype)
    limits: dict[str, tuple[float, float]] = {"f": (-np.inf, np.inf), "b": (0, 1)}
    low, high = limits.get(dtype.kind) or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    low = low if section.low is None else section.low
    high = high if section.high is None else section.high
    return gymnasium.spaces.Box(low, high, tuple(section.shape), dtype.type)
