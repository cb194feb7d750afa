"""Settings and results of runs, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.plugins.recorded.listing import ListedRun, read_run
from surreal.plugins.runs.choosing import compare, flattened
from surreal.run.process.ending import Counts, Ending, result_of
from surreal.run.process.run_folder import RunFolder


def made(path: Path, *overrides: str, steps: int = 0) -> ListedRun:
    config = load_config("bandit-pg", overrides)
    folder = RunFolder(path)
    folder.claim()
    folder.begin(config, path.name, 1.0)
    counts = Counts(steps, steps // 10)
    folder.write_result(result_of(config, path.name, Ending("max_env_steps"), started=1.0, counts=counts))
    folder.release()
    return read_run(path)


def test_settings_that_differ_and_results_stand_side_by_side(tmp_path: Path) -> None:
    first = made(tmp_path / "a", "learner.gamma=0.9", "seed=1", steps=100)
    second = made(tmp_path / "b", "learner.args={initial_learning_rate: 0.5}", "seed=1", steps=200)
    (tmp_path / "b" / "eval").mkdir()
    (tmp_path / "b" / "eval" / "scores.jsonl").write_text('{"kind": "round", "mean_return": 0.25}\n')
    found = compare([first, second])
    assert found.settings == {
        "learner.args.initial_learning_rate": [0.01, 0.5],
        "learner.args.entropy_beta": [0.01, None],
        "learner.gamma": [0.9, 0.99],
    }
    assert found.results["env steps"] == [100, 200]
    assert found.results["last return"] == [None, 0.25]
    assert found.to_json()["runs"] == ["a", "b"]


def test_runs_that_cannot_be_compared_are_said(tmp_path: Path) -> None:
    first = made(tmp_path / "a")
    with pytest.raises(ConfigError, match="1 run to compare; name at least two"):
        compare([first])
    second = made(tmp_path / "b")
    (tmp_path / "b" / "app.yaml").unlink()
    with pytest.raises(ConfigError, match="run b has no configuration that can be read"):
        compare([first, second])
    with pytest.raises(ConfigError, match="run x has no folder here; name its Redis"):
        compare([first, ListedRun("x", "over")])


def test_sections_become_dotted_names_and_lists_stay_whole() -> None:
    assert flattened({"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}, "f": {}}) == {
        "a.b.c": 1,
        "a.d": [1, {"e": 2}],
        "f": {},
    }
