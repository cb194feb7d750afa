"""A run's folder: one writer, files that are whole, and nothing left of a run that did not begin."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from surreal.base.errors import BusyError, ConfigError, FolderError
from surreal.config import load_config
from surreal.run.process.ending import Ending, result_of
from surreal.run.process.run_folder import RunFolder, new_run_id, newest_checkpoint, newest_running


def begun(path: Path, *overrides: str) -> RunFolder:
    """A folder in which a run has begun."""
    folder = RunFolder(path)
    folder.claim()
    folder.begin(load_config("cartpole-dqn", overrides), "run-1", 5.0)
    return folder


def test_run_ids_differ_and_begin_with_the_name() -> None:
    ids = {new_run_id("cartpole-dqn") for _ in range(20)}
    assert len(ids) == 20
    assert all(run.startswith("cartpole-dqn-") for run in ids)


def test_configuration_and_id_in_the_folder_are_those_that_run(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run", "learner.batch_size=32")
    assert load_config(folder.config_path).learner.batch_size == 32
    assert load_config(folder.config_path).name == "cartpole-dqn"
    assert folder.read_run() == "run-1"
    assert RunFolder(tmp_path).read_run() is None


def test_folder_of_another_run_is_not_overwritten(tmp_path: Path) -> None:
    RunFolder(tmp_path).require_new()
    begun(tmp_path).release()
    with pytest.raises(ConfigError, match="holds a run already; --resume"):
        RunFolder(tmp_path).require_new()


def test_folder_has_one_writer_who_is_named(tmp_path: Path) -> None:
    first, second = begun(tmp_path), RunFolder(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(BusyError, match=f"a run that is alive: process {os.getpid()} on "):
        second.claim()
    second.release()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    first.release()
    second.claim()


def test_what_did_not_begin_leaves_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "a")
    folder.claim()
    (folder.path / "redis").mkdir()
    (folder.path / "redis" / "file").touch()
    folder.release()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    folder = RunFolder(tmp_path / "mine")
    folder.claim()
    folder.release()
    assert folder.path.exists()


def test_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be a run's folder"):
        RunFolder(tmp_path / "file").claim()


@pytest.mark.parametrize("address", ["redis://:secret@host:6379", "unix:///tmp/x.sock?password=secret"])
def test_files_with_a_password_are_for_this_user_only(tmp_path: Path, address: str) -> None:
    folder = begun(tmp_path, f"redis.address={address}")
    folder.write_address(address, "run-1")
    for name in ("app.yaml", "redis.address"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


def test_address_is_there_while_the_run_goes_on(tmp_path: Path) -> None:
    folder = begun(tmp_path / "a")
    assert folder.read_address() is None
    assert newest_running(tmp_path) is None
    folder.write_address("host:6379", "run-1")
    assert folder.read_address() == ("host:6379", "run-1")
    found = newest_running(tmp_path)
    assert found is not None
    assert found.path == folder.path
    RunFolder(folder.path).release()  # another's address is none of its business
    assert newest_running(tmp_path) is not None
    folder.release()
    folder.release()
    assert newest_running(tmp_path) is None


def test_newest_of_several_running(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "old"]):
        folder = begun(tmp_path / name)
        folder.write_address("host:1", name)
        os.utime(folder.path / "redis.address", (1000 - age, 1000 - age))
    found = newest_running(tmp_path)
    assert found is not None
    assert found.path.name == "new"


def test_result_says_running_until_it_is_written(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["status"], result["run"], result["exit_code"], result["started"]) == ("running", "run-1", None, 5.0)
    folder.write_result({"status": "finished"})
    assert json.loads((tmp_path / "result.json").read_text()) == {"status": "finished"}


def test_result_is_written_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = begun(tmp_path)
    monkeypatch.setattr("surreal.run.process.run_folder.write_whole", write)
    folder.write_result({"status": "failed", "reason": "x" * 1000})
    assert json.loads((tmp_path / "result.json").read_text()) == {"status": "failed", "reason": "x" * 1000}
    with pytest.raises(FolderError, match="No space left"):
        folder.write_result({"reason": "x" * 10_000})
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "failed"


def test_newest_checkpoint_is_told_by_its_name(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == 0
    (tmp_path / "checkpoints").mkdir()
    for name in ("0000000012.safetensors", "0000000120.safetensors", "other.safetensors"):
        (tmp_path / "checkpoints" / name).touch()
    assert newest_checkpoint(tmp_path) == 120


def test_time_of_a_resumed_run_has_all_of_its_parts(tmp_path: Path) -> None:
    config, folder = load_config("cartpole-dqn"), begun(tmp_path)
    assert folder.earlier_s == 0.0
    folder.write_result(result_of(config, "run-1", Ending("interrupted"), started=5.0, time_s=30.0))
    folder.begin(config, "run-1", 100.0)
    assert folder.earlier_s == 30.0
    # This part is killed: its last metrics say how long it was at least.
    (tmp_path / "metrics.jsonl").write_text('{"time": 112.5, "process": "learner"}\n{"time": 113')
    folder.begin(config, "run-1", 200.0)
    assert folder.earlier_s == 42.5
    assert json.loads((tmp_path / "result.json").read_text())["time_s"] == 42.5
