"""From configuration to objects: the only place where this happens. Constructors get explicit values and collaborators.

Called by the role processes, by `surreal play` and by the launcher's check. Every function raises `ConfigError` or
`EnvError` with one clear sentence when a setting does not work out.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from surreal.agent import Agent
from surreal.checkpoint import CheckpointStore, load_checkpoint
from surreal.config import Config
from surreal.distributed.broadcaster import TorchBroadcaster
from surreal.distributed.client import RedisClient
from surreal.distributed.listener import TorchListener
from surreal.distributed.sender import ExpSender
from surreal.distributed.shards import ReplayShards
from surreal.envs import EnvPool, LocalEnvPool, SubprocEnvPool, check_env_id, make_env, make_vector_env
from surreal.envs.actions import ActionAdapter
from surreal.envs.pool import describe_observations
from surreal.errors import CheckpointError, ContractError
from surreal.learner import Learner
from surreal.main.construct import Recipe, check, construct
from surreal.main.policy import policy_tensors
from surreal.main.replay_build import check_replay
from surreal.main.spaces import explicit_spaces
from surreal.main.wrapping import check_wrappers, remote_wrappers, wrapper_specs
from surreal.model import Model
from surreal.replay import Replay
from surreal.schedules import schedule_from_config
from surreal.specs import ObsSpec, action_spec

logger = logging.getLogger(__name__)

_MODEL_OFFERED = frozenset({"action_space", "obs_spec", "seed"})
MODEL = Recipe("model", Model, 0, _MODEL_OFFERED, replaceable=_MODEL_OFFERED, renamed={"hidden_sizes": "hiddens"})
AGENT = Recipe("agent", Agent, 1, frozenset({"rng", "obs_spec", "exploration"}))
LEARNER = Recipe(
    "learner", Learner, 2, frozenset({"device", "max_global_step"}), replaceable=frozenset({"max_global_step"})
)


class Spaces(NamedTuple):
    """What a model needs to know of an environment."""

    obs_spec: ObsSpec | None  #: None: states of any form, as RLX clients send them
    action_space: gymnasium.Space[Any]  #: as agents see it: flat, discrete actions counted from 0


def check_names(config: Config) -> None:
    """Check what a configuration names, before any process is started: classes, their arguments, environments.

    Nothing is built: what a constructor refuses shows in the process that calls it.

    Raises:
        ConfigError: a class is not found, does not fit, or has no such arguments.
        EnvError: an environment does not exist.
    """
    # An environment whose spaces are written down may exist only elsewhere; but evaluation and clients make their own.
    is_made = config.env.action_space is None or config.eval.enabled or config.rlx.clients
    for env_id in (config.env.id if is_made else None, config.eval.env_id):
        if env_id is not None:
            check_env_id(env_id)
    if config.rlx.servers:
        check_wrappers(config)
    check(config, MODEL)
    check(config, AGENT, AGENT.offered - ({"exploration"} if config.agent.exploration is None else set()))
    check(config, LEARNER)
    check_replay(config)


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
    given = explicit_spaces(config.env)
    if given is not None:
        if given.observation is None:
            return Spaces(None, ActionAdapter(given.action).space)
        wrappers = remote_wrappers(config, given, training=training)
        shown, action = given.observation, given.action
        if wrappers is not None:
            shown, action = wrappers.observation_space, wrappers.action_space
        stack = config.env.frame_stack
        return Spaces(
            describe_observations(shown if stack == 1 else batch_space(shown, stack)), ActionAdapter(action).space
        )
    env = build_env(config, training=True)
    try:
        return env_spaces(env)
    finally:
        env.close()


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
        return SubprocEnvPool(factories, num_workers=env.num_workers, seed=seed)
    return LocalEnvPool(factories, seed=seed)


def build_model(config: Config, spaces: Spaces) -> Model:
    """Make the network. The seed is the run's: agents, learner and evaluation begin with the same parameters."""
    offered = {"action_space": spaces.action_space, "obs_spec": spaces.obs_spec, "seed": config.seed}
    return construct(config, MODEL, (), offered)


def restore_model(config: Config, model: Model) -> None:
    """Let an agent's or an evaluation's model begin with `checkpoint.restore`, if that file is here.

    It is a start only: the learner's parameters, which begin with the same file, replace it.
    """
    path = config.checkpoint.restore
    if path is None or path == "latest":
        return
    try:
        model.load_tensors(policy_tensors(load_checkpoint(path)))
        logger.info("beginning with the policy in %s", path)
    except (CheckpointError, ContractError) as error:
        logger.warning("checkpoint.restore is not used here, the learner's parameters will come: %s", error)


def build_agent(config: Config, model: Model, spaces: Spaces, *, index: int, rng: np.random.Generator) -> Agent:
    """Make the agent of process number `index`, in training mode, with its exploration."""
    settings = config.agent.exploration_settings()
    offered: dict[str, Any] = {"rng": rng, "obs_spec": spaces.obs_spec}
    if settings is not None:
        per_agent, total = config.env.num_envs, config.env.num_envs * max(1, config.agent.count)
        # Agents beyond `count`, which joined from elsewhere, share the places of the first ones.
        places = [place % total for place in range(index * per_agent, (index + 1) * per_agent)]
        offered["exploration"] = schedule_from_config(settings, indices=places, count=total)
    agent = construct(config, AGENT, (model,), offered)
    agent.set_mode("training")
    return agent


def build_greedy_agent(config: Config, model: Model, spaces: Spaces, *, rng: np.random.Generator) -> Agent:
    """Make an agent that never explores."""
    offered: dict[str, Any] = {"rng": rng, "obs_spec": spaces.obs_spec}
    if config.agent.exploration is not None:
        offered["exploration"] = None
    agent = construct(config, AGENT, (model,), offered)
    agent.set_mode("eval")
    return agent


def build_sender(
    config: Config,
    shards: ReplayShards,
    pool: EnvPool,
    stop: threading.Event,
    *,
    index: int = 0,
    on_full: Literal["wait", "drop"] | None = None,
) -> ExpSender:
    """Make the sender of process number `index`; `on_full` wins over `sender.on_full`."""
    return ExpSender(
        shards,
        chunk_steps=config.sender.chunk_steps,
        chunk_max_bytes=config.sender.chunk_max_bytes,
        max_delay_s=config.sender.max_delay_s,
        lookahead=config.lookahead,
        on_full=on_full or config.sender.on_full,
        compression=config.sender.compression,
        wait_timeout_s=config.sender.wait_timeout_s,
        is_limited=config.replay.samples_per_insert is not None,
        obs_spec=pool.obs_spec,
        action_spec=action_spec(pool.action_space),
        frame_stack=config.env.frame_stack,
        shard=index % len(shards),
        stop=stop,
    )


def build_learner(config: Config, model: Model, replay: Replay) -> Learner:
    """Make the learner."""
    offered = {"device": config.device, "max_global_step": config.run.max_env_steps}
    return construct(config, LEARNER, (model, replay), offered)


def build_broadcaster(
    config: Config, client: RedisClient, model: Model, stop: threading.Event | None = None
) -> TorchBroadcaster:
    """Make the learner's side of the parameters."""
    return TorchBroadcaster(client, model, policy=config.broadcast.policy, stop=stop)


def build_listener(config: Config, client: RedisClient, model: Model) -> TorchListener:
    """Make the agents' and the evaluation's side of the parameters."""
    return TorchListener(client, model, policy=config.broadcast.policy)


def build_checkpoints(config: Config, run_dir: Path) -> CheckpointStore:
    """Make the learner's store of whole checkpoints."""
    return CheckpointStore(run_dir / "checkpoints", keep=config.checkpoint.checkpoints_to_keep)
