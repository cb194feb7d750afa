"""A sweep of two tiny runs, interrupted in the first and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from surreal.base.errors import SurrealError
from surreal.plugins.recorded.listing import list_runs
from surreal.plugins.sweep.folder import TrialFile
from surreal.run.process.finding import find_run
from surreal.run.view.reader import run_status

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

#: One process a run, apart from its launcher.
SWEEP = """
base: bandit-pg
set: {run.deterministic: true, run.max_env_steps: 1000, run.stop_at_return: null, eval.episodes: 20}
grid: {learner.gamma: [0.5, 0.9]}
parallel: 1
"""


def state_of(run: Path) -> str:
    try:
        with find_run(None, address=None, run_dir=run) as client:
            return run_status(client).state
    except SurrealError:
        return "nobody knows it"


def test_sweep_is_interrupted_and_goes_on(workplace: Workplace) -> None:
    (workplace.folder / "lr.yaml").write_text(SWEEP)
    folder = workplace.folder / "sweeps" / "lr"
    first = folder / "runs" / "000-s0"
    command = workplace.start("sweep", "lr.yaml")
    workplace.wait_for(lambda: command.process.poll() is not None or state_of(first) == "running", "the first run")
    command.interrupt()
    assert command.wait() == 130, command.output
    assert "ended: interrupted by SIGINT" in command.output
    assert "to continue: surreal sweep lr.yaml --resume" in command.output
    assert workplace.processes() == []
    run = json.loads((first / "result.json").read_text())
    assert (run["status"], run["reason"]) == ("interrupted", "interrupted by SIGINT")
    assert [trial.end for trial in TrialFile(folder / "trials.jsonl").trials] == [None]

    code, output = workplace.run("sweep", "lr.yaml")
    assert code == 2
    assert "already has a sweep; --resume continues it" in output

    command = workplace.start("sweep", "lr.yaml", "--resume")
    assert command.wait() == 0, command.output
    assert "ended: all trials are over" in command.output
    trials = TrialFile(folder / "trials.jsonl").trials
    assert [trial.settings for trial in trials] == [{"learner.gamma": 0.5}, {"learner.gamma": 0.9}]
    assert [trial.end is not None and trial.end.status for trial in trials] == ["finished"] * 2
    runs = list_runs([folder])
    assert [(each.label, each.status) for each in runs] == [("000-s0", "finished"), ("001-s0", "finished")]
    assert runs[0].run == run["run"]
    assert all(each.env_steps >= 1000 for each in runs)
    assert {path.name for path in first.iterdir()} >= {"eval", "metrics.jsonl", "app.yaml"}
    assert workplace.processes() == []
    assert list(workplace.temporary.iterdir()) == []
