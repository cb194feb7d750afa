"""Plays a saved policy, without a run and without Redis: `surreal play CHECKPOINT`, and the check after a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from surreal.config import add_python_path
from surreal.run.build.acting import build_evaluator
from surreal.run.build.environments import env_spaces
from surreal.run.build.saved_policy import Policy
from surreal.run.commands.viewing import View
from surreal.run.evaluation import EpisodeScore
from surreal.run.process.role import role_rng
from surreal.run.process.roles import RandomStream
from surreal.run.session.acting import saved_agent


def play_policy(
    policy: Policy,
    episodes: int,
    *,
    rng: np.random.Generator,
    num_envs: int | None = None,
    view: View = View(),  # noqa: B008 - it is immutable
    on_episode: Callable[[int, EpisodeScore], None] | None = None,
) -> list[EpisodeScore]:
    """Play whole episodes as the evaluation does, each with a fresh seed.

    Args:
        policy: what `load_policy` gave.
        episodes: how many, >= 1.
        rng: draws the seeds.
        num_envs: environments played at once; None takes `eval.num_envs`.
        view: how they are seen.
        on_episode: called after each episode with its number; episodes are then played one after another.

    Raises:
        BusyError: another process records into the folder of videos.
        EnvError: the environment cannot be made, or cannot be shown or recorded.
        CheckpointError: the parameters do not fit the configuration's model.
    """
    config = policy.config
    add_python_path(config.python_path)
    is_single = view.is_any or on_episode is not None
    count = 1 if is_single else min(num_envs or config.eval.num_envs, episodes)
    with ExitStack() as stack:
        envs = [view.make_env(config, stack, name="play") for _ in range(count)]
        agent = saved_agent(policy, config, env_spaces(envs[0]), rng=rng)
        stack.callback(agent.close)
        evaluator = build_evaluator(config, agent, envs, rng=rng)
        if on_episode is None:
            return evaluator.play(episodes)
        scores: list[EpisodeScore] = []
        for number in range(episodes):
            scores += evaluator.play(1)
            on_episode(number, scores[-1])
        return scores


def fresh_rng(seed: int | None) -> np.random.Generator:
    """Seeds for `surreal play`: drawn anew, or repeatable with `--seed`."""
    return np.random.default_rng() if seed is None else role_rng(seed, RandomStream.PLAY)
