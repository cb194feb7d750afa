"""Check the names in a configuration without making anything; `surreal.run.lockstep.check` makes and tries it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from surreal.base.errors import ConfigError, EnvError
from surreal.config import Config
from surreal.run.build.acting import AGENT, MODEL
from surreal.run.build.construct import check, find_device, refused
from surreal.run.build.environments import check_env, check_wrappers
from surreal.run.build.learning import LEARNER, check_gradients, check_ranks, check_replay
from surreal.run.build.lockstep import gradients_config, lockstep_config
from surreal.run.build.rlx_server import pages_folder
from surreal.run.observers.making import check_observers
from surreal.run.process.attributes import why_fixed


def check_machine(config: Config) -> None:
    """Check that this machine has the devices and the display that the run's processes need."""
    find_device(config, "device", config.device)
    if config.agent.count or config.rlx.servers:
        find_device(config, "agent.device", config.agent.device)
    if config.replay.pin_memory and not torch.cuda.is_available():
        raise refused(config, "replay.pin_memory", "is true, but there is no CUDA here; leave it out")
    if config.agent.show_ui and config.agent.count > 0:
        require_display("agent.show_ui")
    if config.eval.show_ui and config.eval.enabled:
        require_display("eval.show_ui")


def has_display() -> bool:
    """Whether a window can be opened here, as far as it can be known before."""
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    return sys.platform != "linux" or any(os.environ.get(name) for name in variables)


def require_display(what: str) -> None:
    """Check that a window can be opened."""
    if not has_display():
        problem = f"{what} opens a window, but there is no display here: $DISPLAY and $WAYLAND_DISPLAY are not set"
        others = "`surreal play --record DIR` or `--terminal`, eval.record_video_every"
        raise ConfigError(f"{problem}; videos need none, nor does a terminal: {others}", key=what)


@contextmanager
def naming_setting(config: Config, key: str) -> Iterator[None]:
    """Add to an `EnvError` where the environment was set."""
    try:
        yield
    except EnvError as error:
        key = "env.wrappers" if str(error).startswith("wrapper ") else key
        raise EnvError(f"{error}{config.place_of(key)}") from error


def check_names(config: Config) -> None:
    """Check the classes, arguments and environments of a configuration, before any process is started.

    Nothing is built: what a constructor refuses shows in the process that calls it.
    """
    # An environment whose spaces are written down may exist only elsewhere; but evaluation and clients make their own.
    is_made = config.env.action_space is None or config.eval.enabled or config.rlx.clients
    for key, env_id in (("env.id", config.env.id if is_made else None), ("eval.env_id", config.eval.env_id)):
        if env_id is not None:
            with naming_setting(config, key):
                check_env(env_id)
    if config.rlx.servers:
        check_wrappers(config)
        pages_folder(config)
    check_observers(config, why_fixed(config))
    check(config, MODEL)
    check(config, AGENT, AGENT.offered - ({"exploration"} if config.agent.exploration is None else set()))
    learner, args = check(config, LEARNER)
    if not config.env.has_interventions and (idle := sorted({"intervention_weight", "intervention_cloning"} & {*args})):
        problem = f"has {idle[0]}, but env.interventions is false: nothing replaces actions; set it, or leave it out"
        raise refused(config, "learner.args", problem)
    check_ranks(config)
    replay = check_replay(config)
    if replay.hands_out not in learner.takes:
        given = f"is {config.replay.class_path!r}, which hands out {replay.hands_out}"
        taken = f"{config.learner.class_path!r}, takes {' or '.join(sorted(learner.takes))}"
        raise refused(config, "replay.class", f"{given}, but learner.class, {taken}; choose two that fit")
    if config.run.deterministic:
        lockstep_config(config)
    if config.has_parameter_servers:
        check_gradients(config)
        gradients_config(config)
