"""The ends of a run's logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.plugins.recorded import files as module
from surreal.plugins.recorded.files import log_names, tail_logs

LEARNER = """\
2026-01-31T12:34:56.000Z -------- process learner-host-1-abc (learner)
2026-01-31T12:34:57.000Z INFO     surreal.run: begins
2026-01-31T12:34:59.000Z ERROR    surreal.run: no answer
    Traceback
        ConnectionError: ...
"""
AGENT = "2026-01-31T12:34:58.000Z WARNING  surreal.agent: <b>slow</b>\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "learner.log").write_text(LEARNER)
    (tmp_path / "logs" / "agent-0.log").write_text(AGENT)
    (tmp_path / "logs" / "agent-0.out").write_text("no log")
    return tmp_path


def test_records_of_all_processes_are_in_the_order_of_time(folder: Path) -> None:
    assert log_names(folder) == ["agent-0", "learner"]
    found = tail_logs(folder)
    assert [(record.process, record.level) for record in found] == [
        ("learner", "INFO"),
        ("learner", "INFO"),
        ("agent-0", "WARNING"),
        ("learner", "ERROR"),
    ]
    assert found[-1].text == "surreal.run: no answer\nTraceback\n    ConnectionError: ..."


def test_records_are_chosen_by_process_level_and_text(folder: Path) -> None:
    assert [record.process for record in tail_logs(folder, level="WARNING")] == ["agent-0", "learner"]
    assert [record.level for record in tail_logs(folder, processes=["learner"], level="WARNING")] == ["ERROR"]
    assert [record.process for record in tail_logs(folder, contains="CONNECTION")] == ["learner"]
    assert [record.level for record in tail_logs(folder, limit=1)] == ["ERROR"]
    assert tail_logs(folder / "elsewhere") == []


def test_of_a_long_log_only_the_end_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TAIL_BYTES", 1000)
    lines = [f"2026-01-31T12:34:56.{i:03}Z INFO     surreal: {i}\n" for i in range(900)]
    (folder / "logs" / "learner.log").write_text("".join(lines))
    found = tail_logs(folder, processes=["learner"])
    assert len(found) < 25
    assert found[-1].text == "surreal: 899"
