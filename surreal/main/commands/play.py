"""Plays a saved policy, without a run and without Redis: `surreal play CHECKPOINT`, and the check after a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from surreal.config import add_python_path
from surreal.envs import record_video
from surreal.errors import BusyError
from surreal.evaluation import EpisodeScore, Evaluator
from surreal.main.build.environments import build_env, env_spaces
from surreal.main.build.saved_policy import Policy
from surreal.main.process.role import role_rng
from surreal.main.process.roles import RandomStream
from surreal.main.session.acting import saved_agent
from surreal.utils.files import FileLock


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
        record: folder for a video of each episode; excludes `show`, for an environment draws in one way at a time.
        show: open a window.
        on_episode: called after each episode with its number; episodes are then played one after another.

    Raises:
        BusyError: another process records into the folder.
        EnvError: the environment cannot be made, or cannot be shown or recorded.
        CheckpointError: the parameters do not fit the configuration's model.
    """
    if record is not None and show:
        raise ValueError("record and show exclude each other")
    config = policy.config
    add_python_path(config.python_path)
    is_single = record is not None or show or on_episode is not None
    mode = "human" if show else "rgb_array" if record is not None else None
    count = 1 if is_single else min(num_envs or config.eval.num_envs, episodes)
    with ExitStack() as stack:
        if record is not None:
            stack.callback(_claim_videos(record).release, is_removed=True)
        envs: list[gymnasium.Env[Any, Any]] = []
        for _ in range(count):
            envs.append(build_env(config, training=False, render_mode=mode))
            stack.callback(envs[-1].close)
        spaces = env_spaces(envs[0])
        if record is not None:
            envs = [record_video(envs[0], str(record), name="play")]
            stack.callback(envs[0].close)
        agent = saved_agent(policy, config, spaces, rng=rng)
        stack.callback(agent.close)
        evaluator = Evaluator(agent, envs, rng=rng, max_episode_steps=config.eval.max_episode_steps)
        if on_episode is None:
            return evaluator.play(episodes)
        scores: list[EpisodeScore] = []
        for number in range(episodes):
            scores += evaluator.play(1)
            on_episode(number, scores[-1])
        return scores


def _claim_videos(folder: Path) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "play.lock")
    if not lock.acquire():
        raise BusyError(f"{folder} gets the videos of {lock.holder()}; name another folder")
    return lock


def fresh_rng(seed: int | None) -> np.random.Generator:
    """Seeds for `surreal play`: drawn anew, or repeatable with `--seed`."""
    return np.random.default_rng() if seed is None else role_rng(seed, RandomStream.PLAY)
