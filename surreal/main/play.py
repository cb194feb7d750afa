"""Plays a saved policy, without a run and without Redis: `surreal play CHECKPOINT`, and the check after a run.

A policy file of the evaluation holds parameters and configuration; a learner's whole checkpoint works as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from pydantic import ValidationError

from surreal.checkpoint import load_checkpoint
from surreal.config import Config, add_python_path
from surreal.envs import record_video
from surreal.errors import CheckpointError, ContractError
from surreal.evaluation import EpisodeScore, Evaluator
from surreal.main import build
from surreal.main.process import role_rng

_MODEL_PREFIX = "model/"


@dataclass(frozen=True)
class Policy:
    """A policy file's content."""

    config: Config
    tensors: dict[str, Any]
    version: int


def load_policy(path: str | Path) -> Policy:
    """Read a policy, or the policy in a learner's checkpoint.

    Raises:
        CheckpointError: the file is missing, damaged, or neither of the two.
    """
    checkpoint = load_checkpoint(path)
    plain = checkpoint.metadata.get("config")
    if checkpoint.metadata.get("kind") not in ("policy", "learner") or not isinstance(plain, dict):
        raise CheckpointError(f"{path} is neither a policy nor a learner's checkpoint of Surreal")
    try:
        config = Config.model_validate(plain)
    except ValidationError as error:
        raise CheckpointError(f"{path} has a configuration that this Surreal cannot read: {error}") from error
    tensors = checkpoint.tensors
    if checkpoint.metadata["kind"] == "learner":
        tensors = {
            name.removeprefix(_MODEL_PREFIX): tensor
            for name, tensor in tensors.items()
            if name.startswith(_MODEL_PREFIX)
        }
    return Policy(config, tensors, int(checkpoint.metadata.get("version", 0)))


def play_policy(
    policy: Policy,
    episodes: int,
    *,
    rng: np.random.Generator,
    num_envs: int | None = None,
    record: Path | None = None,
    show: bool = False,
    on_episode: Callable[[int, EpisodeScore], None] | None = None,
) -> list[EpisodeScore]:
    """Play whole episodes greedily, each with a fresh seed.

    Args:
        policy: what `load_policy` gave.
        episodes: how many, >= 1.
        rng: draws the seeds.
        num_envs: environments played at once; None takes `eval.num_envs`.
        record: folder for a video of each episode.
        show: open a window.
        on_episode: called after each episode with its number; episodes are then played one after another.

    Raises:
        EnvError: the environment cannot be made, or cannot be shown or recorded.
        CheckpointError: the parameters do not fit the configuration's model.
    """
    config = policy.config
    add_python_path(config.python_path)
    is_single = record is not None or show or on_episode is not None
    mode = "human" if show else "rgb_array" if record is not None else None
    count = 1 if is_single else min(num_envs or config.eval.num_envs, episodes)
    envs: list[gymnasium.Env[Any, Any]] = [
        build.build_env(config, training=False, render_mode=mode) for _ in range(count)
    ]
    spaces = build.env_spaces(envs[0])
    if record is not None and not show:
        envs = [record_video(envs[0], str(record), name="play")]
    evaluator: Evaluator | None = None
    try:
        model = build.build_model(config, spaces)
        try:
            model.load_tensors(policy.tensors)
        except ContractError as error:
            raise CheckpointError(f"the file's parameters do not fit its configuration: {error}") from error
        agent = build.build_greedy_agent(config, model, spaces, rng=rng)
        evaluator = Evaluator(agent, envs, rng=rng)
        if on_episode is None:
            scores = evaluator.play(episodes)
        else:
            scores = []
            for number in range(episodes):
                scores += evaluator.play(1)
                on_episode(number, scores[-1])
        agent.close()
        return scores
    finally:
        for env in envs:
            env.close()


def fresh_rng(seed: int | None) -> np.random.Generator:
    """Seeds for `surreal play`: drawn anew, or repeatable with `--seed`."""
    return np.random.default_rng() if seed is None else role_rng(seed, "play")
