"""The check after a run, on scores that are given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from surreal.base.errors import CheckpointError
from surreal.config import load_config
from surreal.run.process.ending import Counts, Ending, ExitCode
from surreal.run.view import play as module
from surreal.run.view.run_view import RunOutcome


def outcome(folder: Path, goal: str, exit_code: ExitCode = ExitCode.OK) -> RunOutcome:
    config = load_config("cartpole-ppo", [f"run.stop_at_return={goal}"])
    return RunOutcome("r", folder, config, Ending("why it ended", exit_code), Counts(env_steps=1200), time_s=3.4)


@pytest.fixture(autouse=True)
def _plays_two_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_policy", lambda *_, **__: SimpleNamespace(version=1))
    scores = [SimpleNamespace(episode_return=score) for score in (90.0, 110.0)]
    monkeypatch.setattr(module, "play_policy", lambda *_, **__: scores)


@pytest.mark.parametrize(
    ("goal", "is_good", "verdict"), [("100", True, "solved"), ("101", False, "not solved"), ("null", True, "played")]
)
def test_fresh_episodes_are_held_to_the_goal_if_there_is_one(
    tmp_path: Path, goal: str, is_good: bool, verdict: str
) -> None:
    assert module.verify(outcome(tmp_path, goal), 2) == (
        is_good,
        f"{verdict} CartPole-v1: mean return 100 (standard error 10) over 2 episodes, 1200 env steps, 3 s",
    )


def test_a_run_that_failed_is_not_solved(tmp_path: Path) -> None:
    found = module.verify(outcome(tmp_path, "1", ExitCode.FAILED), 2)
    assert found == (False, "not solved CartPole-v1: why it ended")


def test_a_run_without_a_policy_is_not_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise CheckpointError("there is no file")

    monkeypatch.setattr(module, "load_policy", load)
    assert module.verify(outcome(tmp_path, "1"), 2) == (False, "not solved CartPole-v1: there is no file")
