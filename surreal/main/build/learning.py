"""Learners, replays, broadcasters and checkpoint stores, from a configuration."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from surreal.checkpoint import CheckpointStore
from surreal.config import Config, accepted_names
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.parameters.broadcaster import TorchBroadcaster
from surreal.errors import ConfigError
from surreal.learner import Learner
from surreal.main.build.construct import Recipe, check, construct
from surreal.model import Model
from surreal.replay import Replay

LEARNER = Recipe(
    "learner", Learner, 2, frozenset({"device", "max_global_step"}), replaceable=frozenset({"max_global_step"})
)

REPLAY = Recipe(
    "replay",
    Replay,
    1,
    frozenset(
        {
            *("batch_size", "capacity", "max_bytes", "max_age_s", "start_size", "gamma", "n_step", "prefetch", "seed"),
            *("samples_per_insert", "samples_per_insert_tolerance"),
            *("observations", "mirror_max_bytes", "is_owner", "pin_memory"),
        }
    ),
)


def check_replay(config: Config) -> None:
    """Check the replay's class, its arguments, and what the class cannot do without building anything.

    Settings whose silent loss would do harm are refused where the class has no argument for them.

    Raises:
        ConfigError: the class is not found, does not fit, or does not go with a setting.
    """
    cls, _ = check(config, REPLAY)
    accepted, replay = accepted_names(cls), config.replay
    harms = []
    if replay.samples_per_insert is not None:
        harms.append(("samples_per_insert", "samples_per_insert", "agents would wait for a limiter that nobody keeps"))
    if replay.follow:
        harms.append(("follow", "is_owner", "it would own the stream all the same"))
    if replay.max_age_s is not None:
        harms.append(("max_age_s", "max_age_s", "nothing would leave for its age"))
    for name, argument, harm in harms:
        if argument not in accepted:
            problem = f"is set, but {cls.__qualname__} has no argument {argument}: {harm}; leave {name} out"
            raise _refused(config, f"replay.{name}", problem)
    tolerance = replay.samples_per_insert_tolerance
    needed = _samples_of_batch(config) + (replay.samples_per_insert or 0.0)
    if tolerance is not None and tolerance < needed:
        problem = (
            f"is {tolerance:g}; it must be >= {needed:g}, the samples of a batch of {cls.__qualname__} + "
            "samples_per_insert, or no batch fits; raise it or leave it out"
        )
        raise _refused(config, "replay.samples_per_insert_tolerance", problem)


def build_replay(config: Config, shards: ReplayShards, *, seed: int) -> Replay:
    """Make the learner's replay."""
    check_replay(config)
    pin_memory, tolerance = config.replay.pin_memory, config.samples_tolerance
    if tolerance is not None and config.replay.samples_per_insert_tolerance is None:
        tolerance = max(tolerance, 2.0 * _samples_of_batch(config))
    offered = {
        "batch_size": config.learner.batch_size,
        "capacity": config.replay.capacity,
        "max_bytes": None if config.replay.follow else config.replay.max_bytes,
        "max_age_s": config.replay.max_age_s,
        "start_size": config.replay.start_size,
        "gamma": config.learner.gamma,
        "n_step": config.learner.n_step,
        "samples_per_insert": config.replay.samples_per_insert,
        "samples_per_insert_tolerance": tolerance,
        "prefetch": config.replay.prefetch,
        "observations": config.replay.observations,
        "mirror_max_bytes": config.replay.mirror_max_bytes,
        "is_owner": not config.replay.follow,
        "pin_memory": config.device != "cpu" and torch.cuda.is_available() if pin_memory is None else pin_memory,
        "seed": seed,
    }
    return construct(config, REPLAY, (shards,), offered)


def _samples_of_batch(config: Config) -> int:
    """Transitions that the limiter counts for a batch."""
    cls, args = check(config, REPLAY)
    return config.learner.batch_size * cls.count_steps_per_sample(**args)


def _refused(config: Config, key: str, problem: str) -> ConfigError:
    source = config.source_of(key)
    return ConfigError(f"{key} {problem}{f' ({source})' if source else ''}", key=key, source=source)


def build_learner(config: Config, model: Model, replay: Replay) -> Learner:
    """Make the learner."""
    offered = {"device": config.device, "max_global_step": config.run.max_env_steps}
    return construct(config, LEARNER, (model, replay), offered)


def build_broadcaster(
    config: Config, client: RedisClient, model: Model, stop: threading.Event | None = None
) -> TorchBroadcaster:
    """Make the learner's side of the parameters."""
    return TorchBroadcaster(client, model, policy=config.broadcast.policy, stop=stop)


def build_checkpoints(config: Config, run_dir: Path) -> CheckpointStore:
    """Make the learner's store of whole checkpoints."""
    return CheckpointStore(run_dir / "checkpoints", keep=config.checkpoint.checkpoints_to_keep)
