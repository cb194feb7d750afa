"""Offline learning: a learner whose replay is filled from an archive, or from a dataset of Minari."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from surreal.base.errors import ConfigError, ContractError, SurrealError
from surreal.base.specs import action_spec
from surreal.base.system.process import memory_for_replay
from surreal.config import Config, add_python_path, load_config
from surreal.config.loading import SOURCE
from surreal.distributed.connection.contract import describe_difference
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.replay.archive import Manifest, ReplayArchive, import_replay
from surreal.replay.archive.minari_import import DatasetSize, open_archive, size_of
from surreal.run.build.construct import refused, value_of
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import replay_arguments
from surreal.run.process.arguments import RoleArguments
from surreal.run.process.ending import exit_code_of, print_error
from surreal.run.process.role import RoleProcess

logger = logging.getLogger(__name__)


#: What goes with the agents.
_WITHOUT_AGENTS: Mapping[str, int | None] = {
    "agent.count": 0,
    "replay.samples_per_insert": None,
    "replay.samples_per_insert_tolerance": None,
    "run.max_env_steps": None,
}
#: Of these, what the number of updates is made of where no other end is given.
_OF_THE_END = ("replay.samples_per_insert", "run.max_env_steps")
#: Room next to the archive's bytes.
_SPARE_SHARE = 1.1


def offline_settings(config: Config, source: str) -> list[str]:
    """Return the overrides of a run that has this recorded experience in place of agents; see `offline_overrides`."""
    return offline_overrides(config, size_of(source, lookahead=config.lookahead))


def offline_overrides(config: Config, manifest: Manifest | DatasetSize) -> list[str]:
    """Return the overrides of a run that has an archive instead of agents.

    No agents, no limiter, no end by env steps; a replay, and memory, that hold the whole archive; and an end: where
    neither `learner.max_updates` nor `run.max_time_s` says so, the number of updates that a run with agents would make.
    Raises `ConfigError` if that cannot be known, or a setting from the command line would be changed.
    """
    _refuse_asked_for(config)
    if config.has_parameter_servers:
        problem = "is agents, but an archive is learned from without agents; set it to learner"
        raise refused(config, "learner.gradients", problem)
    replay, stored = config.replay, math.ceil(_SPARE_SHARE * manifest.stored_bytes)
    max_bytes = max(replay.max_bytes, stored)
    add_python_path(config.python_path)  # the replay's class may be the user's own
    replayed = replay_arguments(config)
    changes: dict[str, Any] = {key: "null" if value is None else value for key, value in _WITHOUT_AGENTS.items()}
    changes["replay.max_bytes"] = max_bytes
    if config.redis.maxmemory is not None:
        changes["redis.maxmemory"] = memory_for_replay(max_bytes, config.redis.maxmemory)
    for name, fitting in (("capacity", max), ("start_size", min)):
        if name in replayed:
            changes[f"replay.{name}"] = fitting(replayed[name], manifest.steps)
    if not _has_end(config):
        changes["learner.max_updates"] = _usual_updates(config)
    unset = {"use_linear_schedule": "false", "use_cosine_schedule": "false", "learning_rate_factor": "null"}
    for option, value in unset.items():
        if config.learner.args.get(option):
            changes[f"learner.args.{option}"] = value  # it follows env steps, and there are none
    return [f"{key}={value}" for key, value in changes.items()]


def fill_replay(process: RoleProcess, source: str) -> None:
    """Import recorded experience into the run's stream, or the rest; raises as `import_replay`."""
    with open_archive(source, lookahead=process.config.lookahead) as archive:
        _check_spaces(process.config, archive, source)
        result = import_replay(process.replay, archive.path, stop=process.stop)
    logger.info(
        "the replay has %d steps of %s, exported from run %s (%d of %d chunks were there already)",
        archive.manifest.steps, source, archive.manifest.run, result.known_chunks, archive.manifest.chunks,
    )  # fmt: skip


def run_offline_learner(arguments: RoleArguments, run: Callable[[RoleArguments], int]) -> int:
    """Run a learner that no launcher started: with the settings of offline training, and a Redis if none is named."""
    try:
        source = arguments.config
        if arguments.offline is None or source is None:
            raise ConfigError("offline training needs a configuration: name a preset or a file", key="--offline")
        config = load_config(source, arguments.overrides)
        arguments = replace(arguments, overrides=(*arguments.overrides, *offline_settings(config, arguments.offline)))
        config = load_config(source, arguments.overrides)
        with ExitStack() as stack:
            if arguments.redis is None and config.redis.address is None:
                server = EmbeddedRedis(maxmemory_bytes=config.own_redis_bytes)
                stack.callback(server.stop)
                arguments = replace(arguments, redis=server.start().address)
            return run(arguments)
    except SurrealError as error:
        if arguments.debug:
            raise
        print_error(error)
        return exit_code_of(error)


def _refuse_asked_for(config: Config) -> None:
    """Refuse command-line settings that would have no effect."""
    for key, value in _WITHOUT_AGENTS.items():
        given = value_of(config, key)[0]
        is_counted_with = key in _OF_THE_END and not _has_end(config)
        if given != value and config.source_of(key) == SOURCE and not is_counted_with:
            raise refused(config, key, f"is {given}, but --offline has no agents; leave one of them out")


def _has_end(config: Config) -> bool:
    return config.learner.max_updates is not None or config.run.max_time_s is not None


def _usual_updates(config: Config) -> int:
    steps, per_step = config.run.max_env_steps, config.replay.samples_per_insert
    if steps is None or per_step is None:
        raise ConfigError(
            "offline training has no end: --set learner.max_updates=N, or run.max_time_s", key="learner.max_updates"
        )
    return max(1, int(steps * per_step / config.learner.batch_size))


def _check_spaces(config: Config, archive: ReplayArchive, source: str) -> None:
    """Compare the archive with the environment the model is made for."""
    spaces = build_spaces(config)
    contract = archive.contract
    theirs, ours = {"action": contract.action.to_json()}, {"action": action_spec(spaces.action_space).to_json()}
    if spaces.obs_spec is not None:
        theirs["obs"], ours["obs"] = contract.stacked_obs.to_json(), spaces.obs_spec.to_json()
    if diff := describe_difference(theirs, ours):
        raise ContractError(
            f"{source} holds experience of another environment than {config.env.id} ({'; '.join(diff[:3])})", diff=diff
        )
