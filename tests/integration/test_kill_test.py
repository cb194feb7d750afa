"""The kill test, on a small program of which it is known what it loses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kill_test import __main__ as kill_test
from benchmarks.kill_test import table
from benchmarks.kill_test.faults import FAULTS
from benchmarks.kill_test.subjects import Subject

pytestmark = pytest.mark.slow

#: A trainer that steps its environments itself, and saves its counts every 1000 env steps, or never.
_PROGRAM = """
import sys, time
from pathlib import Path
from benchmarks.kill_test.tally import Tally

saves = sys.argv[2] == "saves"
path = Path(sys.argv[1]) / "saved"
steps = int(path.read_text()) if path.exists() else 0
tallies = {kind: Tally(kind) for kind in ("steps", "updates", "counted", "learned")}
while True:
    for kind in ("steps", "updates"):
        tallies[kind].add(1)
    steps += 1
    tallies["counted"].set(steps)
    tallies["learned"].set(steps)
    if saves and steps % 1000 == 0:
        path.write_text(str(steps))
    time.sleep(0.001)
"""


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Measure the program with short waits."""
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setattr(kill_test, "_AFTER_S", 0.1)
    monkeypatch.setattr(kill_test, "_LOOKS", 5)
    monkeypatch.setattr(kill_test, "_RETURN_LIMIT_S", 20.0)
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)

    def run(fault: str, *, saves: bool, is_restarted: bool, settle_s: float = 1.5) -> dict[str, Any]:
        monkeypatch.setattr(kill_test, "_SETTLE_S", settle_s)
        subject = Subject("it", str(program), "", "pytest", is_restarted=is_restarted)
        return kill_test.measure(subject, Path(sys.executable), "saves" if saves else "forgets", FAULTS[fault])

    return run


def test_a_program_that_saves_loses_what_came_after_its_last_save(measure: Any) -> None:
    found = measure("learner", saves=True, is_restarted=True, settle_s=2.5)
    assert found["by_itself"] and found["restarted_by_loop"]
    assert 0 <= found["steps"]["lost"] <= 1000
    assert found["steps"]["doubled"] == 0


def test_a_program_that_forgets_loses_everything(measure: Any) -> None:
    found = measure("tree", saves=False, is_restarted=True)
    assert found["steps"]["lost"] >= found["steps"]["before"] > 0
    assert found["updates"]["lost"] >= found["updates"]["before"]


def test_without_a_fault_nothing_is_lost(measure: Any) -> None:
    found = measure("none", saves=False, is_restarted=False)
    assert found["by_itself"] and not found["restarted_by_loop"]
    # The program counts on while its files are read one after another, which takes milliseconds on a busy machine.
    for counts in (found["steps"], found["updates"]):
        assert counts["lost"] + counts["doubled"] <= 0.05 * counts["before"], counts


def test_without_a_loop_around_it_somebody_has_to_start_it_again(measure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_test, "_RETURN_LIMIT_S", 0.5)
    found = measure("learner", saves=False, is_restarted=False)
    assert found["by_itself"] is False
    assert found["seconds"]["all"] > 0.0


def test_a_fault_of_a_process_that_it_lacks_is_not_counted(measure: Any) -> None:
    for fault in ("store", "worker"):
        assert set(measure(fault, saves=False, is_restarted=False, settle_s=0.1)) == {"not_applicable"}


def test_the_table_has_the_newest_record_of_each_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {
        "subject": "sb3", "task": "cartpole", "fault": "learner", "version": "2", "by_itself": True,
        "restarted_by_loop": True, "seconds": {"all": 5.0}, "steps": {"lost": 1, "doubled": 0}, "updates": {"lost": 2},
        "stored": {"before": 1000, "after": 900}, "return": 20.0,
    }  # fmt: skip
    records = [old, old | {"steps": {"lost": 1234, "doubled": 0}}, {**old, "fault": "store"}]
    records[2] = {key: old[key] for key in ("subject", "task", "version")} | {
        "fault": "store",
        "not_applicable": "no store",
    }
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    monkeypatch.setattr(table, "RECORDS", path)
    lines = table.table().splitlines()
    assert (
        "| SIGKILL of the learner | Stable-Baselines3 | by the loop around it | 5 | 1,234, 0 | 2 | 1,000, 900 | 20 |"
        in lines
    )
    assert any("no store" in line for line in lines) and "Versions: Stable-Baselines3 2." in lines
