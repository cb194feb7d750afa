"""Models, agents, senders, listeners and both ends of self-play, from a configuration."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from surreal.agent import Agent, Rounds
from surreal.base.checkpoint import open_checkpoint
from surreal.base.errors import CheckpointError, ContractError
from surreal.base.pytorch import Module
from surreal.base.schedules import schedule_from_config
from surreal.base.specs import action_spec
from surreal.config import Config
from surreal.distributed.calls import RemoteServer
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.parameters.listener import TorchListener
from surreal.envs import EnvPool
from surreal.run.build.checkpoints import OWN_CHECKPOINTS
from surreal.run.build.construct import Recipe, Setting, construct, find_device, refused
from surreal.run.build.environments import Spaces, build_spaces
from surreal.run.build.saved_policy import policy_file, policy_header, policy_tensors
from surreal.run.evaluation import Evaluator
from surreal.run.process.registry import plain_config
from surreal.run.self_play.exchange import LeagueExchange
from surreal.run.self_play.keeper import FOLDER_NAME, LeagueKeeper
from surreal.run.self_play.league import League
from surreal.run.self_play.opponents import Drawing, PastSelves

logger = logging.getLogger(__name__)

_MODEL_OFFERED = frozenset({"action_space", "obs_spec", "seed"})
_MODEL_RENAMED = {f"{which}hidden_sizes": f"{which}hiddens" for which in ("", "critic_", "value_")}
MODEL = Recipe("model", Module, 0, _MODEL_OFFERED, replaceable=_MODEL_OFFERED, renamed=_MODEL_RENAMED)
AGENT = Recipe(
    "agent",
    Agent,
    1,
    frozenset({"rng", "obs_spec", "action_space", "index", "count", "exploration", "server"}),
    settings=(Setting("exploration", "agent.exploration", ": it would not explore by it"),),
)


def build_model(config: Config, spaces: Spaces) -> Module:
    """Make the network. The seed is the run's: agents, learner and evaluation begin with the same parameters."""
    offered = {"action_space": spaces.action_space, "obs_spec": spaces.obs_spec, "seed": config.seed}
    return construct(config, MODEL, (), offered)


def build_acting_model(config: Config, spaces: Spaces) -> Module:
    """Make the network of an agent's process, on `agent.device`; a listener puts the parameters there as well."""
    device = find_device(config, "agent.device", config.agent.device)
    return build_model(config, spaces).to(device)


def restore_model(config: Config, model: Module) -> None:
    """Start an agent's or an evaluation's model from `checkpoint.restore`, if that file is on this machine.

    It is a start only: the learner's parameters, which begin with the same file, replace it.
    """
    path = config.checkpoint.restore
    if path is None or path in OWN_CHECKPOINTS:
        return
    try:
        checkpoint = open_checkpoint(policy_file(path))
        model.load_tensors(policy_tensors(checkpoint), header=policy_header(checkpoint))
        logger.info("beginning with the policy in %s", path)
    except (CheckpointError, ContractError) as error:
        logger.warning("checkpoint.restore is not used here, the learner's parameters will come: %s", error)


def build_agent(
    config: Config,
    model: Module,
    spaces: Spaces,
    *,
    index: int,
    rng: np.random.Generator,
    server: RemoteServer | None = None,
) -> Agent:
    """Make the agent of process number `index`, in training mode, with its exploration."""
    settings = config.agent.exploration_settings()
    offered = _offer(config, spaces, index, rng, server)
    if settings is not None:
        per_agent, total = config.env.num_envs, config.env.num_envs * max(1, config.agent.count)
        # Agents beyond `count`, which joined from elsewhere, share the places of the first ones.
        places = [place % total for place in range(index * per_agent, (index + 1) * per_agent)]
        try:
            offered["exploration"] = schedule_from_config(settings, indices=places, count=total)
        except ValueError as error:
            raise config.refusal("agent.exploration", f"agent.exploration: {error}") from error
    return _make_agent(config, model, spaces, offered, "training")


def _offer(
    config: Config, spaces: Spaces, index: int, rng: np.random.Generator, server: RemoteServer | None
) -> dict[str, Any]:
    return {
        "server": server,
        "rng": rng,
        "obs_spec": spaces.obs_spec,
        "action_space": spaces.action_space,
        "index": index,
        "count": max(1, config.agent.count),
    }


def build_greedy_agent(config: Config, model: Module, spaces: Spaces, *, rng: np.random.Generator) -> Agent:
    """Make an agent that never explores."""
    offered = _offer(config, spaces, 0, rng, None)
    if config.agent.exploration is not None:
        offered["exploration"] = None
    return _make_agent(config, model, spaces, offered, "eval")


def _make_agent(config: Config, model: Module, spaces: Spaces, offered: dict[str, Any], mode: str) -> Agent:
    agent = construct(config, AGENT, (model,), offered)
    if config.eval.sample and agent.sampler is None:
        problem = f"is true, but {config.agent.class_path} has no sampler; leave it out, or use PolicyAgent"
        raise refused(config, "eval.sample", problem)
    agent.expect_actions(spaces.action_space)
    agent.set_mode(mode)
    return agent


def build_evaluator(
    config: Config, agent: Agent, envs: Sequence[gymnasium.Env[Any, Any]], *, rng: np.random.Generator
) -> Evaluator:
    """Make an evaluator with the settings of `eval`. An exported policy is always greedy, because it has no sampler."""
    is_sampled = config.eval.sample and agent.sampler is not None
    return Evaluator(agent, envs, rng=rng, max_episode_steps=config.eval.max_episode_steps, sample=is_sampled)


def build_sender(
    config: Config,
    shards: ReplayShards,
    pool: EnvPool,
    stop: threading.Event,
    *,
    index: int = 0,
    on_full: Literal["wait", "drop"] | None = None,
    is_limited: bool = True,
) -> ExpSender:
    """Make the sender of process number `index`, which waits for the limiter, if there is one and `is_limited`."""
    return ExpSender(
        shards,
        chunk_steps=config.sender.chunk_steps,
        chunk_max_bytes=config.sender.chunk_max_bytes,
        max_delay_s=config.sender.max_delay_s,
        lookahead=config.lookahead,
        state_interval=config.replay.args.get("start_interval", 1),
        on_full=on_full or config.sender.on_full,
        compression=config.sender.compression,
        wait_timeout_s=config.sender.wait_timeout_s,
        is_limited=is_limited and config.replay.samples_per_insert is not None,
        obs_spec=pool.obs_spec,
        action_spec=action_spec(pool.action_space),
        frame_stack=config.env.frame_stack,
        interventions=config.env.has_interventions,
        shard=index % len(shards),
        stop=stop,
    )


def build_rounds(config: Config, should_stop: Callable[[], bool], *, sessions: int | None = None) -> Rounds | None:
    """Make the rounds in which agents wait for parameters, if `agent.round_steps` is set."""
    if config.agent.round_steps is None:
        return None
    return Rounds(
        config.agent.round_steps,
        config.env.num_envs if sessions is None else sessions,
        is_shared=sessions is not None or config.env.shares_rounds,
        timeout_s=config.agent.round_timeout_s,
        should_stop=should_stop,
    )


def build_remote_server(config: Config, client: RedisClient, stop: threading.Event) -> RemoteServer:
    """Make the client through which agents call methods of the learner or parameter server."""
    return RemoteServer(client, policy=config.broadcast.policy, stop=stop)


def build_listener(config: Config, client: RedisClient, model: Module, *, keeps_time: bool = False) -> TorchListener:
    """Make the agents' and the evaluation's side of the parameters; `keeps_time` is that of the agent's `EnvPool`."""
    policy, shards = config.broadcast.policy, config.num_servers
    return TorchListener(client, model, policy=policy, shards=shards, in_place=not keeps_time)


def build_keeper(config: Config, client: RedisClient, run_dir: Path, stop: threading.Event) -> LeagueKeeper | None:
    """Make the keeper of a learner's versions; None without self-play."""
    settings = config.self_play
    if not settings.enabled:
        return None
    return LeagueKeeper(
        LeagueExchange(client, config.broadcast.policy),
        League(size=settings.versions, rating_step=settings.rating_step),
        run_dir / FOLDER_NAME,
        every_env_steps=settings.every_env_steps,
        every_updates=settings.every_updates,
        metadata={"run": client.run, "config": plain_config(config)},
        stop=stop,
    )


def build_opponents(config: Config, client: RedisClient, *, index: int, rng: np.random.Generator) -> PastSelves | None:
    """Make the opponents of agent number `index`; None without self-play."""
    settings = config.self_play
    if not settings.enabled:
        return None
    spaces = build_spaces(config)

    def make_agent() -> Agent:
        own_rng = np.random.default_rng(rng.integers(2**63))
        return build_agent(config, build_acting_model(config, spaces), spaces, index=index, rng=own_rng)

    drawing = Drawing(
        settings.newest_share,
        settings.learns_both,
        settings.sampling,
        settings.pfsp_exponent,
        settings.opponents_explore,
        settings.opponents_at_once,
    )
    return PastSelves(LeagueExchange(client, config.broadcast.policy), make_agent, drawing, rng=rng)
