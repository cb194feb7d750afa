"""Whole episodes of a teacher's environment, on their way to the replay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.agent import AgentLoop
from surreal.base.errors import ConfigError
from surreal.base.types import Action
from surreal.config import load_config
from surreal.distributed.experience.local import LocalShards
from surreal.distributed.experience.pointer_queue import PointerQueue
from surreal.distributed.experience.sender import ExpSender
from surreal.envs import LocalEnvPool
from surreal.envs.wrappers.intervention import Intervention
from surreal.plugins.runs.teaching import Taught, Teaching, WholeEpisodes


class Counting(gymnasium.Env[Any, Any]):
    """Observations are the number of the episode; it has five steps."""

    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, faults: tuple[int, ...] = ()) -> None:
        self.number, self.faults = -1, faults

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.number, self.step_number = self.number + 1, 0
        return np.full(1, self.number, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        reward = np.nan if self.number in self.faults and self.step_number == 3 else 1.0
        return np.full(1, self.number, np.float32), reward, self.step_number == 5, False, {}


class Teacher:
    """Takes over in the first two steps, and discards odd episodes after three."""

    def reset(self, obs: Any) -> None:
        self.number, self.steps = int(obs[0]), 0

    def __call__(self, obs: Any, action: Any) -> Any:
        self.steps += 1
        return 2 if self.steps <= 2 else None

    def mark(self) -> str | None:
        return "discard" if self.number % 2 and self.steps == 3 else None


class Zero:
    """An agent that always chooses its first action."""

    class model:  # noqa: N801
        version, scales_rewards = 3, False

    wants_outcomes, global_step = False, None

    def act_batch(self, obs: Any, explore: Any, *_: Any) -> Action:
        return Action(np.zeros(len(explore), np.int64), {}, 3)

    def metrics(self) -> dict[str, float]:
        return {}


def teach(env: Counting, *, steps: int, max_rows: int = 100) -> tuple[list[Taught], dict[int, list[int]]]:
    """Play; returns the episodes, and the actions that were sent of each."""
    taught = Intervention(env, Teacher())
    pool = LocalEnvPool([lambda: taught], seed=0, interventions=True)
    shards, told = LocalShards("test"), list[Taught]()
    sender = ExpSender(shards, interventions=True, chunk_steps=2)
    episodes = WholeEpisodes(sender, lambda: taught.is_discarded, max_rows=max_rows, on_episode=told.append)
    loop = AgentLoop(pool, Zero(), episodes, interventions=True)  # type: ignore[arg-type]
    with pool:
        loop.run(max_env_steps=steps)
    sender.close()
    queue = PointerQueue(shards.local)
    while queue.enqueue_step(waits=False):
        pass
    sent: dict[int, list[int]] = {}
    for chunk in iter(queue.dequeue, None):
        for row, step in zip(chunk.obs_row, range(len(chunk.columns["action"])), strict=True):
            sent.setdefault(int(chunk.leaves[0][row, 0]), []).append(int(chunk.columns["action"][step]))
    return told, sent


def test_a_discarded_episode_and_one_in_progress_leave_nothing() -> None:
    told, sent = teach(Counting(), steps=20)
    assert sent == {0: [2, 2, 0, 0, 0], 2: [2, 2, 0, 0, 0]}
    assert [(episode.length, episode.replaced, episode.is_sent) for episode in told] == [
        (5, 2, True), (3, 2, False), (5, 2, True), (3, 2, False),
    ]  # fmt: skip
    assert told[0].episode_return == 5


def test_an_episode_that_the_environment_lost_leaves_nothing() -> None:
    told, sent = teach(Counting(faults=(0,)), steps=12)
    assert sent == {2: [2, 2, 0, 0, 0]}
    assert [episode.is_sent for episode in told] == [False, True]


def test_an_episode_that_is_too_long_to_be_held_is_sent() -> None:
    told, sent = teach(Counting(), steps=14, max_rows=2)
    assert sent == {0: [2, 2, 0, 0, 0], 1: [2, 2, 0], 2: [2, 2, 0, 0, 0]}
    assert all(episode.is_sent for episode in told)


def test_whole_episodes_know_no_rounds() -> None:
    episodes = WholeEpisodes(ExpSender(LocalShards("test")), lambda: False, max_rows=1)
    with pytest.raises(ValueError, match="no rounds"):
        episodes.send_outcomes(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("preset", "settings", "words"),
    [
        ("cartpole-a3c", [], "learner.gradients is agents"),
        ("cartpole-dqn", [], "run demo does not record interventions"),
        ("cartpole-dqn", ["env.interventions=true", "env.rate_hz=20"], "env.rate_hz is 20, and a taught environment"),
    ],
)
def test_a_run_that_cannot_be_taught_is_refused(preset: str, settings: list[str], words: str) -> None:
    teaching = Teaching(None, episodes=None, success_reward=1.0, failure_reward=0.0, say=print)
    process: Any = SimpleNamespace(config=load_config(preset, settings), client=SimpleNamespace(run="demo"))
    with pytest.raises(ConfigError, match=words):
        teaching(process)
