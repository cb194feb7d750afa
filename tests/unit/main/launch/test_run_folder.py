"""The launcher's files in a run's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from surreal.config import load_config
from surreal.errors import ConfigError
from surreal.main.launch.run_folder import RunFolder, new_run_id, newest_checkpoint, newest_running


def test_run_ids_differ_and_begin_with_the_name() -> None:
    ids = {new_run_id("cartpole-dqn") for _ in range(20)}
    assert len(ids) == 20
    assert all(run.startswith("cartpole-dqn-") for run in ids)


def test_configuration_in_the_folder_is_the_one_that_runs(tmp_path: Path) -> None:
    config = load_config("cartpole-dqn", ["learner.batch_size=32"])
    folder = RunFolder(tmp_path / "run")
    folder.create(config, resume=False)
    assert load_config(folder.config_path).learner.batch_size == 32
    assert load_config(folder.config_path).name == "cartpole-dqn"


def test_folder_of_another_run_is_not_overwritten(tmp_path: Path) -> None:
    config = load_config("cartpole-dqn")
    RunFolder(tmp_path).create(config, resume=False)
    with pytest.raises(ConfigError, match="holds a run already; --resume"):
        RunFolder(tmp_path).create(config, resume=False)
    RunFolder(tmp_path).create(config, resume=True)


@pytest.mark.parametrize("address", ["redis://:secret@host:6379", "unix:///tmp/x.sock?password=secret"])
def test_files_with_a_password_are_for_this_user_only(tmp_path: Path, address: str) -> None:
    folder = RunFolder(tmp_path)
    folder.create(load_config("cartpole-dqn", [f"redis.address={address}"]), resume=False)
    folder.write_address(address, "run-1")
    for name in ("app.yaml", "redis.address"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


def test_address_is_there_while_the_run_goes_on(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "a")
    folder.create(load_config("cartpole-dqn"), resume=False)
    assert folder.read_address() is None
    assert newest_running(tmp_path) is None
    folder.write_address("host:6379", "run-1")
    assert folder.read_address() == ("host:6379", "run-1")
    found = newest_running(tmp_path)
    assert found is not None
    assert found.path == folder.path
    folder.remove_address()
    folder.remove_address()
    assert newest_running(tmp_path) is None


def test_newest_of_several_running(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "old"]):
        folder = RunFolder(tmp_path / name)
        folder.create(load_config("cartpole-dqn"), resume=False)
        folder.write_address("host:1", name)
        os.utime(folder.path / "redis.address", (1000 - age, 1000 - age))
    found = newest_running(tmp_path)
    assert found is not None
    assert found.path.name == "new"


def test_result_is_json(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_result({"status": "finished"})
    assert json.loads((tmp_path / "result.json").read_text()) == {"status": "finished"}


def test_newest_checkpoint_is_told_by_its_name(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == 0
    (tmp_path / "checkpoints").mkdir()
    for name in ("0000000012.safetensors", "0000000120.safetensors", "other.safetensors"):
        (tmp_path / "checkpoints" / name).touch()
    assert newest_checkpoint(tmp_path) == 120
