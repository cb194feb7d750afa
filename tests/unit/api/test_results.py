"""A result's tables, and short texts of results, policies and evaluations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import surreal
from surreal.api.tables import ColumnTable, read_lines, table
from surreal.api.training import Result
from surreal.base.errors import SurrealError
from surreal.config import load_config
from surreal.run.evaluation import EvaluationRound
from surreal.run.evaluation.scores import EpisodeScore
from tests.policies import write_policy


@pytest.fixture
def result(tmp_path: Path) -> Result:
    (tmp_path / "eval").mkdir()
    rounds = [{"kind": "episode", "return": 1.0}, {"kind": "round", "time": 1.0, "round": 0, "mean_return": 2.5}]
    (tmp_path / "eval" / "scores.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in rounds) + '{"kind": "ro'
    )
    metrics = [
        {"time": 1.0, "process": "learner", "step": 10, "metrics": {"learner/loss": 0.5, "learner/q_mean": 1.0}},
        {"time": 2.0, "process": "agent-0", "step": 20, "metrics": {"agent/epsilon": 0.1}},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in metrics))
    return Result("demo", tmp_path, load_config("cartpole-dqn"), "finished", "max_env_steps", 12345, 61.2, 2.5)


def test_tables_have_a_column_for_each_name_and_none_where_a_row_has_no_value(result: Result) -> None:
    assert list(result.scores.items()) == [("round", [0]), ("mean_return", [2.5]), ("time", [1.0])]
    every = result.metrics()
    assert every["learner/loss"] == [0.5, None] and every["agent/epsilon"] == [None, 0.1] and every["step"] == [10, 20]
    assert list(result.metrics("learner/loss")) == ["time", "process", "step", "learner/loss"]
    with pytest.raises(ValueError, match=r"no metric learner/los; did you mean learner/loss\?"):
        result.metrics("learner/loss", "learner/los")
    shown = repr(ColumnTable(a=list(range(9)), b=[None] * 9))
    assert shown.splitlines()[-1] == "[9 rows; the last 5 are shown]" and len(shown.splitlines()) == 7


@pytest.mark.parametrize(("columns", "more"), [(200, ""), (60, "; more columns: learner/q_mean")])
def test_a_table_shows_whole_names_and_times_that_people_read(
    columns: int, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    times = [1_795_730_000.0, 3e38, float("nan"), None]
    losses = [0.5] * 4
    shown = repr(ColumnTable({"time": times, "learner/explained_variance": losses, "learner/q_mean": losses}))
    title, first, *others, last = shown.splitlines()
    assert title.split()[:2] == ["time", "learner/explained_variance"]
    assert first.startswith("2026-11-26 21:53:20 ")
    assert [line.split()[0] for line in others] == ["3e+38", "nan", "0.5"]
    assert last == f"[4 rows; the last 4 are shown{more}]"
    assert max(map(len, shown.splitlines()[:-1])) <= columns
    assert repr(ColumnTable()) == "[0 rows; the last 0 are shown]"


def test_pandas_makes_the_tables_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: ("frame", columns), __spec__=1)
    )
    assert table([{"a": 1}, {"a": 2, "b": 3}]) == ("frame", {"a": [1, 2], "b": [None, 3]})


def test_a_file_that_is_missing_or_cut_gives_what_is_there(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "none")) == []
    (tmp_path / "cut").write_text('{"a": 1}\n[2]\n{"a"')
    assert list(read_lines(tmp_path / "cut")) == [{"a": 1}]


def test_short_texts(result: Result, tmp_path: Path) -> None:
    assert repr(result) == "<Result demo: finished, best return 2.5, 12,345 env steps, 61 s>"
    policy = surreal.load(write_policy(tmp_path / "best.safetensors", "cartpole-dqn"))
    assert repr(policy) == "<Policy of cartpole-dqn, version 7: obs [4] float32 -> Discrete(2)>"
    played = EvaluationRound(0, 7, (EpisodeScore(1.0, 5, 0), EpisodeScore(3.0, 5, 1)))
    assert repr(played) == "<EvaluationRound: mean return 2 (standard error 1), 2 episodes>"


def test_a_policy_is_saved_elsewhere(tmp_path: Path) -> None:
    policy = surreal.load(write_policy(tmp_path / "best.safetensors", "cartpole-dqn"))
    policy.save(tmp_path / "copy.safetensors")
    obs = policy.observation_space.sample()
    copy = surreal.load(tmp_path / "copy.safetensors")
    assert copy.act(obs) == policy.act(obs) and copy.version == policy.version == 7
    pretrained = surreal.load("cartpole-ppo")
    pretrained.save(tmp_path / "pretrained.safetensors")
    assert repr(surreal.load(tmp_path / "pretrained.safetensors")) == repr(pretrained)


def test_a_plot_that_cannot_be_drawn_is_an_error(result: Result) -> None:
    with pytest.raises(SurrealError, match="is not a run"):
        result.plot()


def test_the_package_lists_what_a_user_may_use() -> None:
    shown = set(dir(surreal))
    for part in ("learner", "agent", "replay"):
        module = getattr(__import__(f"surreal.{part}"), part)
        ends = {"learner": "Learner", "agent": "Agent", "replay": "Replay"}[part]
        assert {name for name in module.__all__ if name.endswith(ends)} <= shown, part
    assert not [name for name in shown if name.startswith("_") and name != "__version__"]
    assert all(hasattr(surreal, name) for name in shown)
