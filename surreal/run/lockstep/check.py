"""Check that a run is possible: make its objects and do one update with them, in this process.

`surreal run --check` and the start of every run ask for it; no process, Redis or file of the run is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import surreal.replay
from surreal.base.checkpoint import Checkpoint, open_checkpoint
from surreal.base.errors import CheckpointError, ContractError, SurrealError
from surreal.base.pytorch import tensors_of
from surreal.config import Config, accepted_names
from surreal.distributed.experience.local import LocalShards
from surreal.distributed.gradients.encoding import assign_parameters
from surreal.envs import LocalEnvPool
from surreal.learner import GradientLearner, Learner
from surreal.run.build import environments
from surreal.run.build.acting import build_model
from surreal.run.build.check import check_machine, check_names, naming_setting
from surreal.run.build.checkpoints import OWN_CHECKPOINTS, earlier_checkpoint
from surreal.run.build.construct import check, refused
from surreal.run.build.learning import LEARNER, build_checkpoints, build_learner, build_replay
from surreal.run.build.saved_policy import policy_file, policy_header, policy_tensors
from surreal.run.lockstep.rehearsal import RandomEnv, Rehearsal, smallest_config
from surreal.run.process.ending import error_line
from surreal.run.process.run_folder import CONFIG_NAME

#: Turns of acting before a batch is no longer expected: a user's replay may want more than a check waits for.
_MOST_TURNS = 8
_SHAPES = "agents pass [B, ...], learners of trajectories [T + 1, B, ...]"


def check_run(config: Config, *, resumed: Path | None = None, is_here: bool = True) -> None:
    """Make environment, model, agent, replay and learner, and do one update on random rows that fit the spaces. If a
    run continues, `resumed` is its folder. If it is to start here, this machine needs its devices and display. An error
    names the setting, or the line of user code.
    """
    try_update(config, check_parts(config, resumed=resumed, is_here=is_here))


def check_parts(config: Config, *, resumed: Path | None = None, is_here: bool = True) -> environments.EnvSpaces:
    """Make environment, model, replay and learner with all of their settings and their initial state."""
    check_names(config)
    if is_here:
        check_machine(config)
    config = _on_cpu(config)
    with naming_setting(config, "env.kwargs" if config.env.kwargs else "env.id"):
        spaces = environments.find_spaces(config)
    environments.check_safe_action(config, environments.agent_spaces(spaces).action_space)
    if config.eval.enabled:
        with naming_setting(config, "eval.env_kwargs" if config.eval.env_kwargs else "eval.env_id"):
            environments.build_env(config, training=False).close()
    with ExitStack() as stack:
        model = build_model(config, environments.agent_spaces(spaces))
        replay = None
        if config.learner.ranks == 1:
            replay = build_replay(config, stack.enter_context(closing(LocalShards("check"))), seed=0)
        build_learner(config, model, replay)
    restore = config.checkpoint.restore
    if resumed is not None and (own := _own_checkpoint(config, resumed)) is not None:
        _check_fits(config, own)
    elif restore is not None and restore not in OWN_CHECKPOINTS:
        _check_restore(config, restore)
    return spaces


def try_update(config: Config, spaces: environments.EnvSpaces | None = None) -> None:
    """Act on random rows, if there is an observation space, and learn from them once; torch's generator stays."""
    config = _on_cpu(config)
    spaces = environments.find_spaces(config) if spaces is None else spaces
    if spaces.observation is not None:
        with torch.random.fork_rng(devices=()):
            _try_rows(smallest_config(config), RandomEnv(spaces.observation, spaces.action))


def _try_rows(config: Config, env: RandomEnv) -> None:
    pool = LocalEnvPool([partial(deepcopy, env)] * config.env.num_envs, seed=config.seed)
    with ExitStack() as stack:
        # What its replay reports is not about the run.
        replay_logger = logging.getLogger(surreal.replay.__name__)
        stack.callback(replay_logger.setLevel, replay_logger.level)
        replay_logger.setLevel(logging.WARNING)
        rehearsal = Rehearsal(config, stack, pool)
        calls = _Calls(rehearsal.model)
        batch = None
        for _ in range(_MOST_TURNS):
            with _explaining(config, "agent", "acts with", calls):
                rehearsal.act()
            with _explaining(config, "replay", "makes a batch for", calls):
                batch = rehearsal.next_batch()
            if batch is not None:
                break
        else:
            return
        with _explaining(config, "learner", "updates", calls):
            rehearsal.learn(batch)


def _on_cpu(config: Config) -> Config:
    """Return the settings for a learner on the CPU, if its class has devices."""
    cls, _ = check(config, LEARNER)
    return config.model_copy(update={"device": "cpu"}) if "device" in accepted_names(cls) else config


class _Calls:
    """Notes the observations that a model is in the middle of computing with."""

    def __init__(self, model: nn.Module) -> None:
        #: shape of the first leaf, while `forward` runs or after it has raised; None otherwise
        self.shape: list[int] | None = None
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end)

    def _begin(self, model: nn.Module, inputs: Any) -> None:
        given = tensors_of(inputs[:1])
        self.shape = list(given[0].shape) if given else None

    def _end(self, model: nn.Module, inputs: Any, output: Any) -> None:
        self.shape = None


@contextmanager
def _explaining(config: Config, section: str, does: str, calls: _Calls) -> Iterator[None]:
    """Explain which class of the run failed, at what, and where in its code, unless a `SurrealError` does."""
    try:
        yield
    except SurrealError:
        raise
    except Exception as error:
        cls, model = getattr(config, section).class_path, config.model.class_path
        key, problem = f"{section}.class", f"{cls} fails while it {does} {model}"
        if calls.shape is not None:
            key, obs = "model.class", f"observations {calls.shape} ({_SHAPES})"
            problem = f"{model} fails for {obs} while {cls} {does} it"
        if cls.startswith("surreal.") and model.startswith("surreal."):
            problem += "; choose two that go together (docs/algorithms/README.md)"
        raise config.refusal(key, f"{key} {problem}: {error_line(error)}") from error


def _own_checkpoint(config: Config, run_dir: Path) -> Checkpoint | None:
    """Read the run's own checkpoint to continue with; None without one yet. Raises `CheckpointError`."""
    store = build_checkpoints(config, run_dir)
    named = earlier_checkpoint(config, run_dir)
    found = store.newest_whole() if named is None else store.load(named)
    if found is None and not (run_dir / CONFIG_NAME).exists():
        raise CheckpointError(f"{run_dir} holds no run to resume, and {store.places} no checkpoint of it")
    return found


def _check_restore(config: Config, restore: str) -> None:
    try:
        _check_fits(config, open_checkpoint(policy_file(restore)))
    except (CheckpointError, ContractError) as error:
        raise refused(config, "checkpoint.restore", f"is {restore!r}: {error}") from error


def _check_fits(config: Config, found: Checkpoint) -> None:
    config = _on_cpu(config)
    model = build_model(config, environments.build_spaces(config))
    if found.metadata.get("kind") != "learner":
        model.load_tensors(policy_tensors(found), header=policy_header(found))
        return
    learner: Learner = build_learner(config, model, None)
    if isinstance(learner, GradientLearner) and config.num_servers > 1:  # it keeps the first server's optimizers
        learner.become_ready()
        learner.own(assign_parameters(learner.parameter_groups(), config.num_servers)[0])
    try:
        learner.load_state_dict({"tensors": found.tensors, "state": found.metadata["state"]})
    except CheckpointError as error:
        raise CheckpointError(f"{found.path} does not fit the configuration: {error}") from error
