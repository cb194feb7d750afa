"""A run that has ended: faults planted in its folder, and what the doctor finds there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surreal.cli.program import main
from surreal.config import load_config
from surreal.plugins.doctor.run import ending, logs, scores
from surreal.run.process.ending import Counts, Ending, ExitCode, result_of
from surreal.run.process.run_folder import RunFolder
from tests.recorded import write_metrics

CONFIG = load_config("cartpole-dqn")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The folder of a run that has begun."""
    folder = RunFolder(tmp_path / "mine")
    folder.claim()
    folder.begin(CONFIG, "cartpole-7", 5.0)
    return folder


def finish(folder: RunFolder, end: Ending, updates: int = 40) -> None:
    folder.write_result(result_of(CONFIG, "cartpole-7", end, started=5.0, counts=Counts(500, updates, 4)))
    folder.release()


def write_scores(folder: Path, *returns: float) -> None:
    (folder / "eval").mkdir()
    lines = [json.dumps({"kind": "round", "round": i, "mean_return": value}) for i, value in enumerate(returns)]
    (folder / "eval" / "scores.jsonl").write_text("\n".join(lines))
    (folder / "eval" / "best.json").write_text(json.dumps({"mean_return": max(returns)}))


def test_what_went_wrong_is_named(folder: RunFolder) -> None:
    assert [each.fault for each in ending(folder.path)] == ["run-killed"]
    finish(folder, Ending("learner failed: no memory", ExitCode.FAILED))
    path = folder.path
    write_scores(path, 10.0, 300.0, 20.0)
    (path / "logs").mkdir()
    (path / "logs" / "learner.log").write_text("2026-01-01T00:00:00.000Z ERROR    surreal.x: no memory\n")
    row = {"time": 1.0, "process": "learner", "step": 5, "metrics": {"learner/skipped_updates_total": 3.0}}
    (path / "metrics.jsonl").write_text(json.dumps(row) + '\n{"cut o')
    found = {each.fault: each.text for check in (ending(path), scores(path, CONFIG), logs(path)) for each in check}
    assert found["run-failed"] == "the run failed: learner failed: no memory"
    assert found["goal-missed"] == f"the best return is 300.0; run.stop_at_return is {CONFIG.run.stop_at_return:g}"
    assert found["policy-collapsed"] == "the last return is 20.0, the best was 300.0, the first 10.0"
    assert found["errors-logged"].startswith("learner: ")
    assert found["updates-skipped"] == "3 updates were skipped"


def test_a_run_without_an_update_is_not_trained(folder: RunFolder) -> None:
    finish(folder, Ending("max_env_steps: 500 env steps"), updates=0)
    assert [each.fault for each in ending(folder.path)] == ["", "run-untrained"]


def test_nothing_is_wrong_with_a_run_that_learned(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    finish(folder, Ending("stop_at_return: mean return 500"))
    write_scores(folder.path, 10.0, 500.0, 470.0)
    assert main(["doctor", str(folder.path), "--only", "run"]) == 0
    assert "0 errors, 0 warnings, 0 hints; 3 checks are ok" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("returns", "weights", "faults"),
    [
        ([9.0] * 9, (4.0, 5.0), ["returns-constant"]),
        ([340, 385, 290, 350, 310, 380, 330, 300, 370, 320], (4.0, 4.0001), ["no-improvement", "weights-unchanged"]),
        ([340, 385, 290, 350, 310, 380, 330, 300, 370, 320], (4.0, 4.1), ["no-improvement"]),
        ([10 * i for i in range(9)], (4.0, 4.0), [""]),
        ([10, 90, 90, 90, 90, 90, 90, 90, 90, 90], (4.0, 5.0), [""]),  # it learned at once
        ([10, 20, 400, 400, 400, 400, 10, 12, 11], (4.0, 5.0), ["policy-collapsed"]),
        ([500] * 9, (4.0, 4.0), [""]),  # the goal
        ([9.0] * 5, (4.0, 4.0), [""]),  # too early to tell
    ],
)
def test_a_run_that_does_not_improve_is_told_from_one_that_learned(
    folder: RunFolder, returns: list[float], weights: tuple[float, float], faults: list[str]
) -> None:
    write_scores(folder.path, *returns)
    for i, weight in enumerate(weights):
        write_metrics(folder.path, "learner", 100 * i, {"learner/weight_norm": weight})
    assert [each.fault for each in scores(folder.path, CONFIG, is_over=False)] == faults
