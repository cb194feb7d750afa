"""What a configuration names, checked before any process is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from surreal.config import Config
from surreal.distributed.gradients.assigning import assign_parameters
from surreal.errors import CheckpointError, ConfigError
from surreal.learner import GradientLearner, Learner
from surreal.learner.stepping.devices import resolve_device
from surreal.main.build.acting import AGENT, MODEL, build_model
from surreal.main.build.construct import check, refused
from surreal.main.build.earlier import earlier_checkpoint
from surreal.main.build.environments import build_env, build_spaces, check_env
from surreal.main.build.learning import (
    LEARNER,
    build_checkpoints,
    build_learner,
    check_gradients,
    check_ranks,
    check_replay,
)
from surreal.main.build.lockstep import gradients_config, lockstep_config
from surreal.main.build.rlx_server import pages_folder
from surreal.main.build.wrapping import check_wrappers
from surreal.main.process.run_folder import CONFIG_NAME
from surreal.observers.making import check_observers
from surreal.replay import Replay


def check_run(config: Config) -> None:
    """Check what a configuration names, and that what the processes of a run would build can be built here.

    Environment, wrappers and model are made once and thrown away. So a wrong argument, or actions that the model cannot
    choose among, is said once, and not by each process.

    Raises:
        ConfigError, EnvError: something cannot be found, or not be made.
    """
    check_names(config)
    _check_device(config)
    shown = [key for key, is_shown in _SHOWN.items() if is_shown(config)]
    if shown:
        require_display(shown[0])
    if config.agent.count or config.env.action_space is not None:
        build_model(config, build_spaces(config))
    if config.eval.enabled:
        build_env(config, training=False).close()


_SHOWN: dict[str, Callable[[Config], bool]] = {
    "agent.show_ui": lambda config: config.agent.show_ui and config.agent.count > 0,
    "eval.show_ui": lambda config: config.eval.show_ui and config.eval.enabled,
}


def has_display() -> bool:
    """Whether a window can be opened here, as far as it can be known before."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    return sys.platform != "linux" or any(os.environ.get(name) for name in variables)


def require_display(what: str) -> None:
    """Check that a window can be opened.

    Args:
        what: option or setting that asks for one.

    Raises:
        ConfigError: there is no display.
    """
    if not has_display():
        raise ConfigError(
            f"{what} opens a window, but there is no display here: $DISPLAY and $WAYLAND_DISPLAY are not set; videos "
            "need none, nor does a terminal: `surreal play --record DIR` or `--terminal`, eval.record_video_every",
            key=what,
        )


def _check_device(config: Config) -> None:
    try:
        resolve_device(config.device)
    except ValueError as error:
        source = config.source_of("device")
        where = f" ({source})" if source else ""
        raise ConfigError(f"{error}{where}", key="device", source=source) from error
    if config.replay.pin_memory and not torch.cuda.is_available():
        raise refused(config, "replay.pin_memory", "is true, but there is no CUDA here; leave it out")


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
            check_env(env_id)
    if config.rlx.servers:
        check_wrappers(config)
        pages_folder(config)
    check_observers(config)
    check(config, MODEL)
    check(config, AGENT, AGENT.offered - ({"exploration"} if config.agent.exploration is None else set()))
    learner, _ = check(config, LEARNER)
    check_ranks(config)
    _check_units(config, learner, check_replay(config))
    if config.run.deterministic:
        lockstep_config(config)
    if config.has_parameter_servers:
        check_gradients(config)
        gradients_config(config)


def check_resumable(config: Config, run_dir: Path) -> None:
    """Check that a run can go on in its folder: that its checkpoint fits what the configuration makes of it now.

    Raises:
        CheckpointError: the checkpoint is named and cannot be read, or it is of another learner or model; or nothing
            of the run is anywhere.
        SurrealError: learner or model cannot be made.
    """
    store = build_checkpoints(config, run_dir)
    named = earlier_checkpoint(config, run_dir)
    found = store.newest_whole() if named is None else store.load(named)
    if found is None and not (run_dir / CONFIG_NAME).exists():
        raise CheckpointError(f"{run_dir} holds no run to resume, and {store.places} no checkpoint of it")
    if found is not None and found.metadata.get("kind") == "learner":
        config = config.model_copy(update={"device": "cpu"})
        learner = build_learner(config, build_model(config, build_spaces(config)), None)
        if isinstance(learner, GradientLearner) and config.num_servers > 1:  # it keeps the first server's optimizers
            learner.become_ready()
            learner.own(assign_parameters(learner.parameter_groups(), config.num_servers)[0])
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
