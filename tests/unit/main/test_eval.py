"""When an evaluation ends a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from surreal.config import load_config
from surreal.evaluation import EpisodeScore
from surreal.main.eval import EvaluationSession


def stop_reasons(returns: list[float]) -> list[str]:
    """Why a run with the goal 10 ends after rounds of two episodes, and two to confirm, with these returns."""
    left, reasons = iter(returns), []
    session: Any = object.__new__(EvaluationSession)
    session.config = load_config(
        "cartpole-dqn", ["run.stop_at_return=10", "eval.episodes=2", "eval.confirm_episodes=2"]
    )
    session.model, session.book = SimpleNamespace(version=1), SimpleNamespace(rounds=0)
    session.evaluator = SimpleNamespace(
        play=lambda episodes, stop, on_step: [EpisodeScore(next(left), 5, 0) for _ in range(episodes)]
    )
    session.process = SimpleNamespace(turn=lambda: None, rng=lambda *key: None)
    session._write_down = lambda result: None
    session._request_stop = reasons.append
    session._play(None)
    return reasons


def test_goal_must_be_reached_in_the_round_and_by_all_its_episodes() -> None:
    assert stop_reasons([9.0, 10.0]) == []
    assert stop_reasons([10.0, 12.0, 0.0, 0.0]) == []
    assert stop_reasons([12.0] * 4) == ["stop_at_return: mean return 12.0 over 4 episodes"]


@pytest.mark.parametrize("returns", [[float("inf"), 12.0], [12.0, 12.0, 12.0, float("inf")], [float("nan"), 12.0]])
def test_return_that_is_not_finite_ends_no_run(returns: list[float]) -> None:
    assert stop_reasons(returns) == []
