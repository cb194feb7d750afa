"""Learners, replays, broadcasters and checkpoint stores, from a configuration."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import torch

from surreal.checkpoint import CheckpointStore
from surreal.config import Config, accepted_names, default_values
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.errors import ConfigError
from surreal.learner import Learner
from surreal.main.build.construct import Recipe, check, construct
from surreal.replay import Replay
from surreal.replay.engine.conflicts import ReplayPlan
from surreal.replay.stream.limiter import Senders, default_tolerance
from surreal.utils.pytorch import Module

LEARNER = Recipe(
    "learner",
    Learner,
    2,
    frozenset({"device", "max_global_step", "seed"}),
    replaceable=frozenset({"max_global_step", "seed"}),
)

#: What a run can give to a replay: argument of the constructor, key of the setting, and what its loss would do.
_SETTINGS: tuple[tuple[str, str, str], ...] = (
    ("samples_per_insert", "replay.samples_per_insert", ": agents would wait for a limiter that nobody keeps"),
    ("is_owner", "replay.follow", ": it would own the stream all the same"),
    ("max_age_s", "replay.max_age_s", ": nothing would leave for its age"),
    *((key.rpartition(".")[2], key, "") for key in (
        "replay.samples_per_insert_tolerance", "replay.capacity", "replay.start_size", "replay.max_bytes",
        "replay.observations", "replay.mirror_max_bytes", "replay.prefetch", "replay.pin_memory",
        "learner.batch_size", "learner.gamma", "learner.n_step",
    )),
)  # fmt: skip

REPLAY: Recipe[Replay[Any]] = Recipe(
    "replay", Replay, 1, frozenset({"seed", *(argument for argument, _, _ in _SETTINGS)})
)


def check_replay(config: Config) -> type[Replay[Any]]:
    """Check the replay's class, its arguments, and what it cannot work with, without building anything.

    A setting that was given and that the class has no argument for is refused. Defaults are not: what a class does not
    take, it does not get.

    Returns:
        The class.

    Raises:
        ConfigError: the class is not found, does not fit, or does not go with a setting.
    """
    cls, _ = check(config, REPLAY)
    accepted = accepted_names(cls)
    for argument, key, harm in _SETTINGS:
        value, default = _setting(config, key)
        if argument not in accepted and value != default:
            name, shown = key.rpartition(".")[2], json.dumps(default)
            raise _refused(
                config,
                key,
                f"is {json.dumps(value)}, but {cls.__qualname__} has no argument {argument}{harm}; "
                f"leave {name} out, or set it to {shown}",
            )
    arguments = replay_arguments(config)
    for key, problem in cls.conflicts(
        ReplayPlan(
            arguments,
            _senders(config),
            compression=config.sender.compression,
            max_env_steps=config.run.max_env_steps,
        )
    ):
        raise _refused(config, key, problem)
    return cls


def replay_arguments(config: Config) -> dict[str, Any]:
    """What the replay's class has of the run's settings, by the constructor's names: as given, or by its defaults.

    Raises:
        ConfigError: the class is not found, does not fit, or has no such arguments.
    """
    cls, args = check(config, REPLAY)
    accepted = accepted_names(cls)
    given = {name: value for name, value in _offered(config).items() if name in accepted}
    return {**default_values(cls), **given, **args}


def build_replay(config: Config, shards: ReplayShards, *, seed: int) -> Replay[Any]:
    """Make the learner's replay."""
    cls, arguments = check_replay(config), replay_arguments(config)
    offered = {**_offered(config), "seed": seed}
    ratio = arguments.get("samples_per_insert")
    if ratio is not None and arguments.get("samples_per_insert_tolerance") is None:
        samples = arguments["batch_size"] * cls.count_steps_per_sample(**arguments)
        offered["samples_per_insert_tolerance"] = default_tolerance(ratio, samples, _senders(config))
    if config.replay.pin_memory is None:
        offered["pin_memory"] = config.device != "cpu" and torch.cuda.is_available()
    return construct(config, REPLAY, (shards,), offered)


def _setting(config: Config, key: str) -> tuple[Any, Any]:
    """Value of a setting, and its default."""
    section, _, name = key.partition(".")
    settings = getattr(config, section)
    return getattr(settings, name), type(settings).model_fields[name].default


def _offered(config: Config) -> dict[str, Any]:
    """What the run has for a replay; what is unset is left to the class."""
    values = {argument: _setting(config, key)[0] for argument, key, _ in _SETTINGS}
    values["is_owner"] = not config.replay.follow
    if config.replay.follow:  # the bound is the owner's
        del values["max_bytes"]
    return {name: value for name, value in values.items() if value is not None}


def _senders(config: Config) -> Senders:
    return Senders(config.num_senders, config.sender.chunk_steps, config.largest_chunk_steps, config.lookahead)


def _refused(config: Config, key: str, problem: str) -> ConfigError:
    source = config.source_of(key)
    return ConfigError(f"{key} {problem}{f' ({source})' if source else ''}", key=key, source=source)


def build_learner(config: Config, model: Module, replay: Replay[Any]) -> Learner:
    """Make the learner."""
    offered = {"device": config.device, "max_global_step": config.run.max_env_steps, "seed": config.seed}
    return construct(config, LEARNER, (model, replay), offered)


def build_broadcaster(
    config: Config, client: RedisClient, model: Module, stop: threading.Event | None = None
) -> TorchBroadcaster:
    """Make the learner's side of the parameters."""
    return TorchBroadcaster(client, model, policy=config.broadcast.policy, stop=stop)


def build_checkpoints(config: Config, run_dir: Path) -> CheckpointStore:
    """Make the learner's store of whole checkpoints."""
    return CheckpointStore(run_dir / "checkpoints", keep=config.checkpoint.checkpoints_to_keep)
