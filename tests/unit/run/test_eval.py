"""When an evaluation ends a run."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.config import load_config
from surreal.run.evaluation import EpisodeScore
from surreal.run.process.progress import write_progress
from surreal.run.roles.eval import EvaluationSession


def stop_reasons(
    returns: list[float], confirm: int = 2, updates: int = 1, last: Sequence[float] | None = None
) -> list[str]:
    """Why a run with the goal 10 ends after a round of two episodes, and some to confirm, with these returns.

    If `last` is given, there is a last round, of episodes with these returns.
    """
    left, reasons = iter(returns), []
    session: Any = object.__new__(EvaluationSession)
    session.config = load_config(
        "cartpole-dqn", ["run.stop_at_return=10", "eval.episodes=2", f"eval.confirm_episodes={confirm}"]
    )
    session.model, session.book = SimpleNamespace(version=1), SimpleNamespace(rounds=0)
    session.listener = SimpleNamespace(message=write_progress(updates, 10))
    session.evaluator = SimpleNamespace(
        play=lambda episodes, stop, on_step: [EpisodeScore(next(left), 5, 0) for _ in range(episodes)]
    )
    session.process = SimpleNamespace(request_stop=reasons.append, turn=lambda: None, rng=lambda *key: None)
    session._write_down = lambda result, reaches_goal: None
    session._update, session._is_new, session._has_reached_goal = lambda: True, lambda: True, False
    session._play(None)
    assert not list(left)
    if last is not None:
        left = iter(last)
        session.last_round()
        assert not list(left)
    return reasons


def test_policy_before_its_first_update_ends_no_run() -> None:
    assert stop_reasons([12.0, 12.0], updates=0) == []


def test_goal_must_be_reached_in_the_round_and_by_all_its_episodes() -> None:
    assert stop_reasons([9.0, 10.0]) == []
    assert stop_reasons([10.0, 12.0, 0.0, 0.0]) == []
    assert stop_reasons([12.0] * 4) == ["stop_at_return: mean return 12.0 over 4 episodes"]


def test_newest_policy_is_scored_at_the_end_unless_one_was_good_enough() -> None:
    assert stop_reasons([9.0, 9.0], last=[8.0, 8.0]) == []
    assert len(stop_reasons([12.0] * 4, last=[])) == 1


@pytest.mark.parametrize("returns", [[float("inf"), 12.0], [12.0, 12.0, 12.0, float("inf")], [float("nan"), 12.0]])
def test_return_that_is_not_finite_ends_no_run(returns: list[float]) -> None:
    assert stop_reasons(returns) == []


@pytest.mark.parametrize(("mean", "is_confirmed"), [(10.0, False), (10.16, False), (10.17, True)])
def test_goal_is_confirmed_by_fresh_episodes_one_sided_at_95_percent(mean: float, is_confirmed: bool) -> None:
    # A standard deviation of 1 over 100 episodes: 1.645 standard errors are 0.1645.
    spread = (99 / 100) ** 0.5
    assert bool(stop_reasons([99.0, 99.0] + [mean - spread, mean + spread] * 50, confirm=100)) is is_confirmed


def test_hopeless_confirmation_ends_after_its_first_hundred_episodes() -> None:
    assert stop_reasons([10.0, 10.0] + [8.0, 9.0] * 50, confirm=1000) == []
