"""`surreal status`, `top` and `stop` find a run by what a person calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.run.process.arguments import REDIS_VARIABLE
from surreal.run.process.finding import find_address


def test_a_name_is_that_of_a_folder_whose_run_may_have_another_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REDIS_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "redis.address").write_text("unix:///tmp/redis.sock\ncartpole-1\n")
    found = "unix:///tmp/redis.sock", "cartpole-1"
    assert find_address("mine", address=None, run_dir=None) == found
    assert find_address(None, address=None, run_dir=folder) == found
    # Who names both, or an address, means the run of this id.
    assert find_address("other", address=None, run_dir=folder) == (found[0], "other")
    assert find_address("mine", address="host:1", run_dir=None) == ("host:1", "mine")
