"""`surreal profile`: a run in progress, and one that it starts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def names_in(path: Path) -> set[str]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return {event["args"]["name"].partition(" (")[0] for event in events if event["ph"] == "M"}


def test_a_run_in_progress_is_recorded_and_continues(workplace: Workplace) -> None:
    run = workplace.start("run", "cartpole-dqn", *workplace.fast_eval, "--set", "run.stop_at_return=null")
    workplace.wait_for(workplace.knows, "the run's first process")
    workplace.wait_for(lambda: len(workplace.status()["processes"]) == 5, "all five processes")
    code, output = workplace.run("profile", "--seconds", "3", "-o", "here.json.gz")
    assert code == 0, output
    assert {"agent-0", "agent-1", "learner", "launcher"} <= names_in(workplace.folder / "here.json.gz"), output
    learner = next(line.split() for line in output.splitlines() if line.strip().startswith("learner "))
    assert int(learner[3].rstrip("%")) > 0, output  # after process, thread and seconds: update
    before = workplace.status()["updates"]
    workplace.wait_for(lambda: workplace.status()["updates"] > before, "more updates")
    assert workplace.run("stop")[0] == 0
    assert run.wait() == 0, run.output


def test_a_preset_is_started_recorded_and_ended(workplace: Workplace) -> None:
    code, output = workplace.run("profile", "cartpole-dqn", "--seconds", "8", "--set", "run.stop_at_return=null")
    assert code == 0, output
    assert "max_time_s" in output
    assert {"agent", "learner", "launcher"} <= names_in(workplace.folder / "profile.json.gz"), output
    assert "learner" in (workplace.folder / "profile-shares.txt").read_text()


def test_wrong_use_is_one_sentence(workplace: Workplace) -> None:
    code, output = workplace.run("profile", "no-such-run")
    assert (code, "no-such-run" in output) == (2, True), output
    code, output = workplace.run("profile", "--set", "env.num_envs=2")
    assert (code, "--set" in output) == (2, True), output
