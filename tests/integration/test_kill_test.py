"""The kill test, on a small program of which it is known what it loses."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.kill_test import __main__ as kill_test
from benchmarks.kill_test import faults, table
from benchmarks.kill_test.faults import FAULTS
from benchmarks.kill_test.link import Link
from benchmarks.kill_test.running import Running
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
    cells = "by the loop around it | 5 | 1,234, 0 | 2 | 1,000, 900 | 20 | `sb3 --faults learner`"
    assert f"| SIGKILL of the learner | Stable-Baselines3 | {cells} |" in lines
    assert any("no store" in line for line in lines) and "Versions: Stable-Baselines3 2." in lines


#: A store that answers, and a trainer that asks it for each step.
_ASKING = """
import socket, sys, threading, time
from benchmarks.kill_test.link import ports
from benchmarks.kill_test.tally import Tally

here, there = ports()
server = socket.create_server(("127.0.0.1", there))

def serve():
    while True:
        connection, _ = server.accept()
        while data := connection.recv(1):
            connection.sendall(data)

threading.Thread(target=serve, daemon=True).start()
tallies = {kind: Tally(kind) for kind in ("steps", "updates", "counted", "learned")}
while True:
    try:
        link = socket.create_connection(("127.0.0.1", here))
        break
    except OSError:
        time.sleep(0.05)
while True:
    link.sendall(b"x")
    assert link.recv(1)
    for tally in tallies.values():
        tally.add(1)
"""


def test_no_bytes_pass_a_cut_link_and_all_arrive_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    program, folder, link = tmp_path / "program.py", tmp_path / "run", Link()
    program.write_text(_ASKING)
    folder.mkdir()
    seen: list[int] = []

    def hold(seconds: float) -> None:
        # Several looks: what was on its way when the link was cut may still arrive.
        for _ in range(10):
            time.sleep(0.1)
            seen.append(running.count().steps)

    running = Running([sys.executable, str(program)], folder, is_restarted=False, link=link)
    link.start()
    try:
        running.start()
        assert running.wait_for(lambda counts: counts.steps > 100, 60.0) is not None
        monkeypatch.setattr(faults, "time", SimpleNamespace(sleep=hold))
        FAULTS["cut"].strike(running)
        assert seen[-1] == seen[3], seen
        assert running.wait_for(lambda counts: counts.steps > seen[-1] + 100, 60.0) is not None
    finally:
        running.kill_all()
        link.stop()


def test_a_system_without_a_link_is_not_started_to_cut_it() -> None:
    subject = Subject("it", "missing.py", "", "pytest", no_link="no link: one process")
    assert kill_test.measure(subject, None, "saves", FAULTS["cut"]) == {"not_applicable": "no link: one process"}


def test_a_system_that_did_not_learn_is_not_said_to_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "RECORDS", tmp_path / "results.jsonl")
    record = {"subject": "sb3", "task": "frames", "fault": "tree", "seed": 1, "version": "2", "error": "Killed"}
    table.RECORDS.write_text(json.dumps(record | {"machine": {"cores": 2, "load": 15.7}}) + "\n")
    assert "| not measured: it did not learn within 240 s, on 2 cores with a load of 16 | | | | | |" in table.table()
    table.RECORDS.write_text(json.dumps(record | {"by_itself": False}) + "\n")
    assert "could not be started again: Killed" in table.table()


def test_each_record_has_its_command_versions_and_settings() -> None:
    records = [json.loads(line) for line in table.RECORDS.read_text().splitlines()]
    rows = {(record["subject"], record["task"], record["fault"]) for record in records}
    assert rows >= {("surreal", task, fault) for task in ("cartpole", "frames") for fault in ("learner", "tree")}
    for record in records:
        assert record["command"] == table.command(record) and record["version"], record
        assert record["seed"] is None or {"python", "torch"} <= set(record["versions"]), record
    found = kill_test._circumstances(Subject("it", "", "", "pytest"), None)
    assert found["version"] == pytest.__version__ and found["settings"]["hold_s"] == faults.HOLD_S
