"""What a configuration names, checked before any process is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surreal.config import Config
from surreal.envs import check_env_id
from surreal.errors import CheckpointError, ConfigError
from surreal.learner import Learner
from surreal.main.build.acting import AGENT, MODEL, build_model
from surreal.main.build.construct import check
from surreal.main.build.earlier import earlier_checkpoint
from surreal.main.build.environments import build_spaces
from surreal.main.build.learning import LEARNER, build_checkpoints, build_learner, check_replay
from surreal.main.build.wrapping import check_wrappers
from surreal.replay import Replay


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
    learner, _ = check(config, LEARNER)
    _check_units(config, learner, check_replay(config))


def check_resumable(config: Config, run_dir: Path) -> None:
    """Check that a run can go on in its folder: that its checkpoint fits what the configuration makes of it now.

    Raises:
        CheckpointError: the checkpoint is named and cannot be read, or it is of another learner or model.
        SurrealError: learner or model cannot be made.
    """
    store = build_checkpoints(config, run_dir)
    named = earlier_checkpoint(config.checkpoint.restore, run_dir)
    found = store.newest_whole() if named is None else store.load(named)
    if found is not None and found.metadata.get("kind") == "learner":
        config = config.model_copy(update={"device": "cpu"})
        learner = build_learner(config, build_model(config, build_spaces(config)), None)
        try:
            learner.load_state_dict({"tensors": found.tensors, "state": found.metadata["state"]})
        except CheckpointError as error:
            raise CheckpointError(f"{found.path} does not fit the configuration: {error}") from error


def _check_units(config: Config, learner: type[Learner], replay: type[Replay[Any]]) -> None:
    """Check that the learner takes what the replay hands out.

    Raises:
        ConfigError: it does not.
    """
    if replay.hands_out not in learner.takes:
        source = config.source_of("replay.class")
        raise ConfigError(
            f"replay.class is {config.replay.class_path!r}, which hands out {replay.hands_out}, but learner.class, "
            f"{config.learner.class_path!r}, takes {' or '.join(sorted(learner.takes))}; choose two that fit"
            f"{f' ({source})' if source else ''}",
            key="replay.class",
            source=source,
        )
