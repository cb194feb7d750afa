"""The runs that a person names."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.plugins.recorded.listing import find_runs
from tests.recorded import record_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("dqn-0", "dqn-1", "ppo-0"):
        record_run(tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["runs/dqn-0"], ["dqn-0"]),
        (["dqn-0"], ["dqn-0"]),
        (["dqn-*"], ["dqn-0", "dqn-1"]),
        (["runs/dqn-*", "dqn-0"], ["dqn-0", "dqn-1"]),
        (["runs"], ["dqn-0", "dqn-1", "ppo-0"]),
        (["."], ["dqn-0", "dqn-1", "ppo-0"]),
    ],
)
def test_runs_are_found_by_folder_name_and_pattern(runs: Path, names: list[str], found: list[str]) -> None:
    assert [run.label for run in find_runs(names)] == found


@pytest.mark.parametrize(
    ("name", "message"), [("ppo-O", "did you mean ppo-0?"), ("x*", "runs has dqn-0, dqn-1, ppo-0"), ("..", "not a run")]
)
def test_what_is_no_run_is_refused_with_what_there_is(runs: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        find_runs([name])


def test_where_there_are_no_runs_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"there is none in {tmp_path}/runs"):
        find_runs(["demo"])
