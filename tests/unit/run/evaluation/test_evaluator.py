"""The evaluation loop: every episode counts the same, and nothing explores."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import EnvError, StoppedError
from surreal.base.types import Action
from surreal.run.evaluation import EpisodeScore, EvaluationRound, Evaluator


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
        self.masks: list[Any] = []

    def set_mode(self, mode: str) -> None:
        self.mode = mode

    def act_batch(self, obs: Any, explore: Any, env_ids: Any, first: Any, action_mask: Any = None) -> Action:
        self.calls.append((obs, explore, env_ids, first))
        self.masks.append(action_mask)
        return Action(np.ones(len(explore), np.int64), {}, 3)


class Faulty(FixedLength):
    """Shows an impossible number in the third step of some episodes, or as their first observation."""

    def __init__(self, length: int, *, every: int = 2, bad: float = np.nan, at: str = "obs") -> None:
        super().__init__(length)
        self.every, self.bad, self.at = every, bad, at

    @property
    def is_bad(self) -> bool:
        return len(self.seeds) % self.every == 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = super().reset(**options)
        return (obs + np.float32(self.bad) if self.is_bad and self.at == "first" else obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *rest = super().step(action)
        if self.is_bad and self._steps == 3:
            obs, reward = (obs, self.bad) if self.at == "reward" else (obs + np.float32(self.bad), reward)
        return obs, reward, *rest


class Masked(FixedLength):
    """Says in odd steps that only action 1 is legal."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        return super().reset(**options)[0], {"action_mask": np.array([1, 1], np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *rest, _ = super().step(action)
        return *rest, {"action_mask": np.array([0, 1], np.int8)} if self._steps % 2 else {}  # type: ignore[return-value]


def evaluator(*envs: gymnasium.Env[Any, Any], agent: Recorder | None = None, **options: Any) -> Evaluator:
    return Evaluator(agent or Recorder(), envs, rng=np.random.default_rng(0), **options)


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


def test_each_player_of_a_game_has_a_slot_of_its_own() -> None:
    class Alternating(FixedLength):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return super().reset(seed=seed)[0], {"player_number": 0}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return (*super().step(action)[:4], {"player_number": self._steps % 2})

    recorder = Recorder()
    evaluator(Alternating(4), FixedLength(4), agent=recorder).play(4)
    slots, first = ([call[place].tolist() for call in recorder.calls] for place in (2, 3))
    assert slots == [[0, 1], [2, 1], [0, 1], [2, 1]] * 2
    assert first == [[True, True], [True, False], [False, False], [False, False]] * 2


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

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            _, *rest = super().step(action)
            return {"a": np.ones(2, np.float32), "b": 2}, *rest  # type: ignore[return-value]

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


@pytest.mark.parametrize(
    ("at", "bad"),
    [*itertools.product(("obs", "reward", "first"), (np.nan, np.inf, -np.inf, 3e38, -3e38)), ("reward", 10**400)],
)
def test_episode_with_an_impossible_number_does_not_count_and_another_is_played(at: str, bad: float) -> None:
    env = Faulty(4, bad=bad, at=at)
    rounds = evaluator(env)
    scores = rounds.play(6)
    assert [score.episode_return for score in scores] == [4.0] * 6
    assert [score.seed for score in scores] == env.seeds[::2]  # those that are good
    assert len(set(env.seeds)) == len(env.seeds) == 11
    assert rounds.void_episodes == 5


def test_number_in_the_last_step_voids_its_episode_too() -> None:
    rounds = evaluator(Faulty(3))
    assert [score.length for score in rounds.play(3)] == [3] * 3
    assert rounds.void_episodes == 2


def test_environment_without_a_good_episode_is_an_error_that_names_it() -> None:
    with pytest.raises(EnvError, match=r"Faulty.*evaluation: observation is nan.*11 episodes were lost"):
        evaluator(Faulty(4, every=1)).play(1)


def test_episode_that_never_ends_is_cut_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    scores = evaluator(FixedLength(10**9), FixedLength(5), max_episode_steps=7).play(2)
    assert [(score.length, score.episode_return, score.is_cut) for score in scores] == [(7, 7.0, True), (5, 5.0, False)]
    assert "1 of 2 episodes did not end within 7 steps" in caplog.text


def test_episode_that_ends_with_its_last_step_is_not_cut() -> None:
    assert [score.is_cut for score in evaluator(FixedLength(7), max_episode_steps=7).play(2)] == [False, False]


def test_only_an_environment_without_a_time_limit_of_its_own_gets_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.run.evaluation.evaluator.DEFAULT_MAX_STEPS", 40)
    score = evaluator(FixedLength(10**9)).play(1)[0]
    assert (score.length, score.is_cut) == (40, True)
    limited = gymnasium.wrappers.TimeLimit(FixedLength(10**9), 45)
    score = evaluator(gymnasium.wrappers.TransformReward(limited, lambda reward: reward)).play(1)[0]
    assert (score.length, score.is_cut) == (45, False)


def test_agent_hears_which_actions_are_legal() -> None:
    agent = Recorder()
    evaluator(Masked(3), FixedLength(3), agent=agent).play(2)
    assert [mask.tolist() for mask in agent.masks] == [
        [[True, True], [True, True]], [[False, True], [True, True]], [[True, True], [True, True]],
    ]  # fmt: skip
    agent = Recorder()
    evaluator(FixedLength(3), agent=agent).play(1)
    assert agent.masks == [None] * 3


def test_progress_of_a_round_is_known_while_it_is_played() -> None:
    seen = []

    class Watching(Recorder):
        def act_batch(self, *columns: Any) -> Action:
            seen.append(rounds.progress)
            return super().act_batch(*columns)

    rounds = evaluator(FixedLength(1), agent=Watching())
    assert rounds.progress == (0, 0)
    rounds.play(3)
    assert seen == [(0, 3), (1, 3), (2, 3)]
    assert rounds.progress == (3, 3)


def test_round_with_a_return_that_is_not_finite_says_so() -> None:
    good, bad = EpisodeScore(1.0, 3, 7), EpisodeScore(float("inf"), 3, 8)
    assert EvaluationRound(0, 7, (good,)).problem == ""
    assert EvaluationRound(0, 7, (good, bad)).problem == "the evaluation's return is not finite: inf with seed 8"


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


class Judged(FixedLength):
    """Says at each step whether its goal is reached, under a name; it is at the end of episodes of an even seed."""

    def __init__(self, name: str) -> None:
        super().__init__(3)
        self.name = name

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = super().step(action)
        seed = self.seeds[-1]
        assert seed is not None
        return obs, reward, terminated, truncated, {self.name: np.float32((seed % 2 == 0) == terminated)}


@pytest.mark.parametrize("name", ["is_success", "success"])
def test_the_success_of_an_episode_is_that_of_its_last_step(name: str) -> None:
    agent: Any = Recorder()
    scores = Evaluator(agent, [Judged(name), Judged(name)], rng=np.random.default_rng(0)).play(20)
    assert [score.is_success for score in scores] == [score.seed % 2 == 0 for score in scores]
    share = sum(score.seed % 2 == 0 for score in scores) / 20
    assert 0 < share < 1
    assert EvaluationRound(0, 1, tuple(scores)).success_ratio == pytest.approx(share)


def test_a_round_of_an_environment_without_goals_has_no_success_ratio() -> None:
    assert EvaluationRound(0, 1, (EpisodeScore(1.0, 2, 3),)).success_ratio is None
