"""Play a saved policy without a run and without Redis: `surreal play`, and `surreal run --verify`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from surreal.base.errors import BusyError, SurrealError
from surreal.base.system.files import FileLock
from surreal.config import Config, add_python_path
from surreal.envs import record_video
from surreal.envs.terminal import Screen, TerminalView, choose_mode
from surreal.run.build.acting import build_evaluator
from surreal.run.build.environments import build_env, env_spaces
from surreal.run.build.saved_policy import SavedPolicy, load_policy
from surreal.run.evaluation import EpisodeScore, EvaluationRound
from surreal.run.process.ending import ExitCode
from surreal.run.process.role import role_rng
from surreal.run.process.roles import RandomStream
from surreal.run.session.acting import saved_agent
from surreal.run.view.run_view import RunOutcome


@dataclass(frozen=True)
class EpisodeDisplay:
    """The display of an environment: a window, the terminal, video files, or none."""

    record: Path | None = None  #: folder for a video of each episode
    show: bool = False  #: open a window
    screen: Screen | None = None  #: the terminal

    def __post_init__(self) -> None:
        if sum((self.record is not None, self.show, self.screen is not None)) > 1:
            raise ValueError("window, terminal and videos exclude each other")

    def make_env(self, config: Config, stack: ExitStack, *, name: str) -> gymnasium.Env[Any, Any]:
        """Make an evaluation environment that is shown in this way; raises `BusyError` or `EnvError` if it cannot."""
        mode = None
        if self.record is not None:
            stack.callback(_claim_videos(self.record).release, is_removed=True)
            mode = "rgb_array"
        elif self.show:
            mode = "human"
        elif self.screen is not None:
            mode = _terminal_mode(config)
        env = stack.enter_context(closing(build_env(config, training=False, render_mode=mode)))
        if self.record is not None:
            env = stack.enter_context(closing(record_video(env, str(self.record), name=name)))
        return env if self.screen is None else TerminalView(env, self.screen)


def _terminal_mode(config: Config) -> str:
    with closing(build_env(config, training=False)) as plain:
        modes = plain.metadata.get("render_modes", ())
    return choose_mode(lambda mode: build_env(config, training=False, render_mode=mode), modes)


def _claim_videos(folder: Path) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "play.lock")
    if not lock.acquire():
        raise BusyError(f"{folder} gets the videos of {lock.holder()}; name another folder")
    return lock


def play_policy(
    policy: SavedPolicy,
    episodes: int,
    *,
    rng: np.random.Generator,
    num_envs: int | None = None,
    view: EpisodeDisplay = EpisodeDisplay(),
    on_episode: Callable[[int, EpisodeScore], None] | None = None,
) -> list[EpisodeScore]:
    """Play whole episodes as the evaluation does, each with a new seed from `rng`, in `num_envs` (None:
    `eval.num_envs`) environments at once. With `on_episode`, which gets each number, they are played one after another.

    Raises `EnvError` if the environment cannot be made, shown or recorded, `BusyError` if another process records into
    the folder, and `CheckpointError` if the parameters do not fit the configuration's model.
    """
    config = policy.config
    add_python_path(config.python_path)
    is_single = view.show or view.record is not None or view.screen is not None or on_episode is not None
    count = 1 if is_single else min(num_envs or config.eval.num_envs, episodes)
    with ExitStack() as stack:
        envs = [view.make_env(config, stack, name="play") for _ in range(count)]
        agent = stack.enter_context(closing(saved_agent(policy, config, env_spaces(envs[0]), rng=rng)))
        evaluator = build_evaluator(config, agent, envs, rng=rng)
        if on_episode is None:
            return evaluator.play(episodes)
        scores: list[EpisodeScore] = []
        for number in range(episodes):
            scores += evaluator.play(1)
            on_episode(number, scores[-1])
        return scores


def fresh_rng(seed: int | None) -> np.random.Generator:
    """Make the generator of `surreal play`: unpredictable, or repeatable with `--seed`."""
    return np.random.default_rng() if seed is None else role_rng(seed, RandomStream.PLAY)


_NUM_ENVS = 20


def verify(outcome: RunOutcome, episodes: int) -> tuple[bool, str]:
    """Load the best policy from its file and play it with new seeds; return whether its mean return reaches
    `run.stop_at_return`, if that is set, and a sentence for people.
    """
    config, goal = outcome.config, outcome.config.run.stop_at_return
    env_id = config.eval.env_id or config.env.id
    if outcome.ending.exit_code is not ExitCode.OK:
        return False, f"not solved {env_id}: {outcome.ending.reason}"
    try:
        policy = load_policy(outcome.folder / "eval" / "best.safetensors", trust=True)
        scores = play_policy(policy, episodes, rng=role_rng(config.seed, RandomStream.VERIFY), num_envs=_NUM_ENVS)
    except SurrealError as error:
        return False, f"not solved {env_id}: {error}"
    played = EvaluationRound(0, policy.version, tuple(scores))
    mean = played.mean_return
    is_missed = goal is not None and mean < goal
    verdict = "not solved" if is_missed else "played" if goal is None else "solved"
    return not is_missed, (
        f"{verdict} {env_id}: mean return {mean:.4g} (standard error {played.standard_error:.2g}) over "
        f"{len(scores)} episodes, "
        f"{outcome.counts.env_steps} env steps, {outcome.time_s:.0f} s"
    )
