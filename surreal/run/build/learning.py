"""Learners, replays, broadcasters and checkpoint stores, from a configuration."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surreal.base.checkpoint import CheckpointStore, RunCheckpoints
from surreal.base.pytorch import Module
from surreal.config import Config, accepted_names, default_values
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.gradients.encoding import assign_parameters
from surreal.distributed.gradients.group import ServerGroup
from surreal.distributed.gradients.queue import GradientQueue
from surreal.distributed.gradients.sender import GradientSender
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.distributed.parameters.parts import PolicyPart
from surreal.learner import GradientLearner, Learner, ReplayView
from surreal.learner.parameter_server.server import ParameterServer
from surreal.model.filters import FilterCounts
from surreal.replay import Replay
from surreal.replay.stream.conflicts import ReplayPlan
from surreal.replay.stream.limiter import Senders, default_tolerance
from surreal.run.build.checkpoints import checkpoint_folders, scored_rounds
from surreal.run.build.construct import Recipe, Setting, check, construct, refused, value_of
from surreal.run.build.goals import GOAL_FUNCTIONS, goal_functions

LEARNER = Recipe(
    "learner",
    Learner,
    2,
    frozenset({"device", "max_global_step", "seed"}),
    replaceable=frozenset({"max_global_step", "seed"}),
    settings=(Setting("device", "device"),),
)

_REPLAY_SETTINGS = (
    Setting("samples_per_insert", "replay.samples_per_insert", ": agents would wait for a limiter that no replay runs"),
    Setting("is_owner", "replay.follow", ": it would own the stream all the same"),
    Setting("max_age_s", "replay.max_age_s", ": nothing would leave for its age"),
    *(Setting(key.rpartition(".")[2], key) for key in (
        "replay.samples_per_insert_tolerance", "replay.capacity", "replay.start_size", "replay.max_bytes",
        "replay.observations", "replay.mirror_max_bytes", "replay.prefetch", "replay.pin_memory",
        "learner.batch_size", "learner.gamma", "learner.n_step",
    )),
)  # fmt: skip

REPLAY: Recipe[Replay[Any]] = Recipe(
    "replay",
    Replay,
    1,
    frozenset({"seed", "in_rounds", *GOAL_FUNCTIONS, *(setting.argument for setting in _REPLAY_SETTINGS)}),
    settings=_REPLAY_SETTINGS,
)


def check_replay(config: Config) -> type[Replay[Any]]:
    """Check the replay's class, its arguments and its conflicts, without building anything."""
    cls, _ = check(config, REPLAY)
    arguments = replay_arguments(config)
    for key, problem in cls.conflicts(
        ReplayPlan(
            arguments, _senders(config), compression=config.sender.compression, max_env_steps=config.run.max_env_steps
        )
    ):
        raise refused(config, key, problem)
    return cls


def replay_arguments(config: Config) -> dict[str, Any]:
    """Return the settings that the replay's class takes, by the constructor's names: as given, or its defaults."""
    cls, args = check(config, REPLAY)
    accepted = accepted_names(cls)
    given = {name: value for name, value in _offered(config).items() if name in accepted}
    return {**default_values(cls), **given, **args}


def check_ranks(config: Config) -> None:
    """Check that learner and replay can be of several ranks, if they should be."""
    if config.learner.ranks == 1:
        return
    cls, _ = check(config, LEARNER)
    replay, _ = check(config, REPLAY)
    if "shards" not in accepted_names(replay):
        problem = f"is {config.learner.ranks}, but {replay.__qualname__} has no argument shards; set it to 1"
        raise refused(config, "learner.ranks", problem)
    if not (issubclass(cls, GradientLearner) and cls.only_steps_down_gradients):
        why = "changes its model by more than steps down gradients, whose mean ranks could agree on"
        problem = f"is {config.learner.ranks}, but {cls.__qualname__} {why}; set it to 1"
        raise refused(config, "learner.ranks", problem)


def build_replay(config: Config, shards: ReplayShards, *, seed: int, rank: int = 0) -> Replay[Any]:
    """Make the learner's replay; that of a rank has a part of the shards and of the capacity."""
    cls, arguments = check_replay(config), replay_arguments(config)
    offered = {**_offered(config), "seed": seed}
    if (ranks := config.learner.ranks) > 1:
        bounds = {name: arguments.get(name) for name in ("capacity", "start_size", "max_bytes")}
        offered |= {name: max(1, bound // ranks) for name, bound in bounds.items() if bound is not None}
        offered["shards"] = range(rank, len(shards), ranks)
    ratio = arguments.get("samples_per_insert")
    if ratio is not None and arguments.get("samples_per_insert_tolerance") is None:
        samples = arguments["batch_size"] * cls.count_steps_per_sample(**arguments)
        offered["samples_per_insert_tolerance"] = default_tolerance(ratio, samples, _senders(config))
    if config.replay.pin_memory is None:
        offered["pin_memory"] = config.device not in ("cpu", "mps") and torch.cuda.is_available()
    if "compute_reward" in accepted_names(cls):
        offered |= goal_functions(config)
    return construct(config, REPLAY, (shards,), offered)


def _offered(config: Config) -> dict[str, Any]:
    """Return the settings of a replay; the class has the defaults of unset ones."""
    values = {setting.argument: value_of(config, setting.key)[0] for setting in _REPLAY_SETTINGS}
    values["is_owner"] = not config.replay.follow
    values["in_rounds"] = config.has_exact_rounds or None
    return {name: value for name, value in values.items() if value is not None}


def _senders(config: Config) -> Senders:
    return Senders(config.num_senders, config.chunk_steps, config.largest_chunk_steps, config.lookahead)


def build_learner(config: Config, model: Module, replay: ReplayView | None, *, rank: int = 0) -> Learner:
    """Make the learner; without a replay, it is for inspection only. Each rank draws different random numbers."""
    if rank:
        config = _with_own_seed(config, rank)
    by_updates = config.learner.args.get("schedule_step") == "update"
    length = config.learner.max_updates if by_updates else config.run.max_env_steps
    compiles = False if config.learner.compile == "auto" and config.run.deterministic else config.learner.compile
    offered = {"device": config.device, "max_global_step": length, "seed": config.seed, "compile": compiles}
    return construct(config, LEARNER, (model, replay), offered)


def _with_own_seed(config: Config, rank: int) -> Config:
    args = config.learner.args
    seed = int(np.random.SeedSequence((args.get("seed", config.seed), rank)).generate_state(1)[0] >> 1)
    learner = config.learner.model_copy(update={"args": {**args, **({"seed": seed} if "seed" in args else {})}})
    return config.model_copy(update={"seed": seed, "learner": learner})


def build_gradient_learner(config: Config, model: Module, replay: Replay[Any] | None) -> GradientLearner:
    """Make a learner that can hand its gradients over."""
    check_gradients(config)
    learner = build_learner(config, model, replay)
    if not isinstance(learner, GradientLearner):
        raise TypeError(f"{type(learner).__name__} was checked, and is not a GradientLearner")
    return learner


def check_gradients(config: Config) -> None:
    """Check that agents can compute the learner's gradients, by its steps and by what the model counts."""
    cls, _ = check(config, LEARNER)
    if not (issubclass(cls, GradientLearner) and cls.only_steps_down_gradients):
        harm = "does more to the model than step down gradients, so a parameter server cannot do it"
        problem = f"is agents, but learner.class, {config.learner.class_path!r}, {harm}"
        advice = "set gradients to learner, or choose another learner"
        raise refused(config, "learner.gradients", f"{problem}; {advice}")
    wanted, agents = config.learner.num_gradients, config.num_agents
    is_mean = config.learner.combine_gradients == "avg" and config.agent.count + config.rlx.servers > 0
    several = cls.takes_several_steps or config.learner.args.get("updates_per_batch", 1) > 1
    if is_mean and several and wanted > agents:
        number = f"agent.count, agent.per_process and rlx.servers make {agents} agents"
        problem = f"is {wanted}, but {cls.__name__} waits after each gradient, and {number}"
        raise refused(config, "learner.num_gradients", f"{problem}; lower it to {agents}, or start more")
    for name in ("normalize_obs", "normalize_rewards"):
        if config.model.args.get(name) and config.learner.gradients_dtype != "float32":
            counts = f"the counts of model.args.{name}, which travel with gradients"
            problem = f"is {config.learner.gradients_dtype}, in which {counts}, are too coarse"
            advice = "set gradients_dtype to float32, or leave the filter out"
            raise refused(config, "learner.gradients_dtype", f"{problem}; {advice}")


def build_gradient_sender(config: Config, shards: ReplayShards, made: GradientLearner) -> GradientSender:
    """Make an agent's way to the parameter servers. The run's env steps are counted at the first shard."""
    learner = config.learner
    return GradientSender(
        shards.clients[0],
        policy=config.broadcast.policy,
        dtype=learner.gradients_dtype,
        shards=config.num_servers,
        parameters=made.parameter_groups(),
        counts=FilterCounts(made.model).groups(),
        max_bytes=learner.gradients_max_bytes,
        max_staleness=learner.gradients_max_lag,
        wait_timeout_s=config.sender.wait_timeout_s,
        num_replay_shards=len(shards),
    )


def build_gradient_queue(
    config: Config, shards: ReplayShards, *, index: int, group: ServerGroup | None, stop: threading.Event
) -> GradientQueue:
    """Make a parameter server's end of the gradients; `shards` as for `build_gradient_sender`."""
    return GradientQueue(
        shards.clients[0],
        policy=config.broadcast.policy,
        shard=index,
        shards=config.num_servers,
        max_staleness=config.learner.gradients_max_lag,
        group=group,
        num_replay_shards=len(shards),
        stop=stop,
    )


def build_server_group(config: Config, shards: ReplayShards, *, index: int) -> ServerGroup | None:
    """Make the group that keeps several parameter servers in step; None for a single one."""
    if config.num_servers == 1:
        return None
    return ServerGroup(
        shards.clients[0],
        policy=config.broadcast.policy,
        shard=index,
        shards=config.num_servers,
        num_replay_shards=len(shards),
    )


def build_parameter_server(
    config: Config, learner: GradientLearner, *, index: int, group: ServerGroup | None
) -> ParameterServer:
    """Make the server that applies gradients to its part of the parameters; the learner is ready."""
    rule, names = config.learner, None
    if group is not None:
        names = assign_parameters(learner.parameter_groups(), config.num_servers)[index]
    return ParameterServer(
        learner,
        combine=rule.combine_gradients,
        num_gradients=rule.num_gradients,
        dc_lambda=rule.dc_lambda,
        dc_history=rule.dc_history,
        names=names,
        gather=None if group is None else group.gather,
    )


def build_broadcaster(
    config: Config,
    client: RedisClient,
    model: Module,
    stop: threading.Event | None = None,
    *,
    part: PolicyPart | None = None,
) -> TorchBroadcaster:
    """Make the learner's side of the parameters, or that of one of several parameter servers."""
    return TorchBroadcaster(client, model, policy=config.broadcast.policy, part=part, stop=stop)


def build_checkpoints(config: Config, run_dir: Path, *, index: int = 0) -> RunCheckpoints:
    """Make the checkpoint stores of the learner, or of parameter server number `index`; nothing is started yet."""
    settings = config.checkpoint

    def store(folder: str) -> CheckpointStore:
        return CheckpointStore(folder, keep=settings.checkpoints_to_keep, keep_best=settings.best_checkpoints_to_keep)

    own, others = checkpoint_folders(config, run_dir, index=index)
    return RunCheckpoints(store(own) if own else None, list(map(store, others)), rounds=lambda: scored_rounds(run_dir))
