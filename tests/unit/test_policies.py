"""`make policies`: the best of the recorded runs, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import policies
from surreal.run.build.saved_policy import PolicyIndex, read_index, read_pretrained
from tests.policies import write_policy


def test_the_page_has_all_policies() -> None:
    assert policies.PAGE.read_text() == policies.page(read_index(str(policies.FOLDER))), "run: make policies"


def test_the_surest_policy_of_the_recorded_runs_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(seed: int, mean: float, error: float, *, env_steps: int = 9) -> dict[str, Any]:
        run = {"seed": seed, "return": mean, "standard_error": error, "episodes": 50, "env_steps": 9}
        folder = tmp_path / "runs" / f"cartpole-dqn-{seed}"
        write_policy(folder / "eval" / "best.safetensors", "cartpole-dqn", f"python_path=[{tmp_path}]")
        (folder / "result.json").write_text(json.dumps({"env_steps": env_steps}))
        return run

    # The mean of seed 1 is less sure; the folder of seed 2 is of another run; seed 4 was not verified.
    records = [record(0, 490.0, 1.0), record(1, 491.0, 4.0), record(2, 500.0, 0.0, env_steps=8), record(3, 480.0, 0.0)]
    records.append({"seed": 4, "return": 500.0})
    monkeypatch.setattr(policies, "read_records", lambda: {("cartpole-dqn", ()): {run["seed"]: run for run in records}})
    monkeypatch.setattr(policies, "FOLDER", tmp_path / "policies")
    monkeypatch.setenv("SURREAL_LEARN", str(tmp_path / "runs"))

    def collected() -> PolicyIndex:
        policies.collect(["cartpole-dqn", "cartpole-ppo"])
        return read_index(str(tmp_path / "policies"))

    assert [(name, entry.seed) for name, entry in collected().policies.items()] == [("cartpole-dqn", 0)]
    assert read_pretrained("cartpole-dqn", str(tmp_path / "policies")).metadata["config"]["python_path"] == []
    records[:] = [record(5, 489.5, 0.0), record(6, 480.0, 0.0)]
    assert collected().policies["cartpole-dqn"].seed == 5
    records[:] = [record(7, 480.0, 0.0)]
    assert collected().policies["cartpole-dqn"].seed == 5, "the better one stays"
    records[:] = [record(8, 500.0, 0.0)]
    monkeypatch.setattr(policies, "MAX_BYTES", 100)
    assert collected().policies["cartpole-dqn"].seed == 5
    assert "more than 100: left out" in capsys.readouterr().out
