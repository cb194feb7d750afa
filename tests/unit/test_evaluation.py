"""The evaluation loop: every episode counts the same, and nothing explores."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.errors import EnvError, StoppedError
from surreal.evaluation import EpisodeScore, EvaluationRound, Evaluator
from surreal.types import Action


class FixedLength(gymnasium.Env[Any, Any]):
    """Episodes of one length, whose return is that length; remembers the seeds it was reset with."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length
        self.seeds: list[int | None] = []
        self.actions: list[Any] = []
        self._obs = np.zeros(2, np.float32)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        self._steps = 0
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self._steps += 1
        return self._obs, 1.0, self._steps == self.length, False, {}


class Recorder:
    """An agent that always takes action 1, and keeps what it was asked."""

    def __init__(self) -> None:
        self.mode = ""
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def set_mode(self, mode: str) -> None:
        self.mode = mode

    def act_batch(self, obs: Any, explore: Any, env_ids: Any, first: Any) -> Action:
        self.calls.append((obs, explore, env_ids, first))
        return Action(np.ones(len(explore), np.int64), {}, 3)


def evaluator(*envs: gymnasium.Env[Any, Any], agent: Recorder | None = None) -> Evaluator:
    return Evaluator(agent or Recorder(), envs, rng=np.random.default_rng(0))


def test_long_episodes_count_as_often_as_short_ones() -> None:
    scores = evaluator(FixedLength(1), FixedLength(50)).play(10)
    assert sorted(score.episode_return for score in scores) == [1.0] * 5 + [50.0] * 5


def test_episodes_that_do_not_divide_are_spread() -> None:
    envs = [FixedLength(2), FixedLength(3), FixedLength(4)]
    scores = evaluator(*envs).play(7)
    assert [len(env.seeds) for env in envs] == [3, 2, 2]
    assert len(scores) == 7


def test_fewer_episodes_than_environments_use_only_some() -> None:
    envs = [FixedLength(2) for _ in range(4)]
    assert len(evaluator(*envs).play(2)) == 2
    assert [len(env.seeds) for env in envs] == [1, 1, 0, 0]


def test_every_episode_has_a_seed_of_its_own_and_says_so() -> None:
    envs = [FixedLength(2), FixedLength(2)]
    rounds = evaluator(*envs)
    scores = rounds.play(4) + rounds.play(4)
    assert len({score.seed for score in scores}) == 8
    assert {score.seed for score in scores} == set(envs[0].seeds) | set(envs[1].seeds)


def test_agent_is_greedy_and_hears_of_first_rows_and_slots() -> None:
    agent = Recorder()
    evaluator(FixedLength(1), FixedLength(2), agent=agent).play(3)
    assert agent.mode == "eval"
    assert not any(explore.any() for _, explore, _, _ in agent.calls)
    assert [ids.tolist() for _, _, ids, _ in agent.calls] == [[0, 1], [0, 1]]
    assert [first.tolist() for *_, first in agent.calls] == [[True, True], [True, False]]


def test_discrete_actions_reach_the_environment_in_its_own_range() -> None:
    env = FixedLength(1)
    env.action_space = spaces.Discrete(2, start=5)
    evaluator(env).play(1)
    assert env.actions == [6]


def test_nested_observations_are_stacked_leaf_by_leaf() -> None:
    class Nested(FixedLength):
        observation_space = spaces.Dict({"b": spaces.Discrete(3), "a": spaces.Box(0, 1, (2,), np.float32)})  # type: ignore[assignment]

        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            super().reset(**options)
            return {"a": np.ones(2, np.float32), "b": 2}, {}

    agent = Recorder()
    evaluator(Nested(1), Nested(1), agent=agent).play(2)
    obs = agent.calls[0][0]
    assert obs["a"].shape == (2, 2)
    assert obs["b"].tolist() == [2, 2]


def test_observation_that_its_space_does_not_describe_is_an_error() -> None:
    class Wrong(FixedLength):
        observation_space = spaces.Dict({"a": spaces.Box(0, 1, (2,), np.float32)})  # type: ignore[assignment]

    with pytest.raises(EnvError, match="does not describe"):
        evaluator(Wrong(1)).play(1)


def test_stop_ends_a_round_without_a_score() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        evaluator(FixedLength(10**6)).play(1, stop=stop)


def test_no_environments_and_no_episodes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        evaluator()
    with pytest.raises(ValueError, match="episodes is 0"):
        evaluator(FixedLength(1)).play(0)


def test_round_statistics_match_numpy() -> None:
    returns = [1.0, 2.0, 4.0, 8.0]
    result = EvaluationRound(0, 7, tuple(EpisodeScore(value, 3, 0) for value in returns))
    assert result.mean_return == np.mean(returns)
    assert result.std_return == pytest.approx(np.std(returns, ddof=1))
    assert result.standard_error == pytest.approx(np.std(returns, ddof=1) / 2)
    assert EvaluationRound(0, 7, result.scores[:1]).standard_error == 0.0
    longer = result.extended([EpisodeScore(5.0, 3, 0)])
    assert (longer.number, longer.version, len(longer.scores)) == (0, 7, 5)
