"""A sweep from a program: its table, and a wrong setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.plugins.sweep.programs import sweep


@pytest.mark.slow
def test_a_sweep_gives_a_table_with_the_best_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = {"eval.interval_s": 0.2, "eval.episodes": 20}
    grid = {"learner.args.initial_learning_rate": [1e-9, 0.05]}
    found = sweep(
        "surreal/Bandit-v0", grid, algorithm="pg", steps=2000, overrides=overrides, name="rates", progress=False
    )
    assert list(found) == ["trial", "learner.args.initial_learning_rate", "status", "score"]
    assert sorted(found["trial"]) == [0, 1] and found["status"] == ["finished", "finished"]
    assert found["score"] == sorted(found["score"], reverse=True)
    assert (tmp_path / "sweeps" / "rates" / "trials.jsonl").exists()


def test_a_wrong_setting_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"did you mean learner\.gamma"):
        sweep("bandit-pg", {"learner.gama": [1.0]}, progress=False)
    with pytest.raises(ConfigError, match="is an environment; name an algorithm as well"):
        sweep("CartPole-v1", {"learner.gamma": [1.0]}, progress=False)
    assert list(tmp_path.iterdir()) == []
