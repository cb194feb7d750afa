"""The folder of a learner without a launcher: going back to an earlier checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from surreal.base.errors import CheckpointError
from surreal.run.session.learner_process import OwnFolder


def learner(folder: Path, restore: str | None, *, resume: bool = True) -> Any:
    checkpoint = SimpleNamespace(restore=restore, stores=["run"])
    return SimpleNamespace(
        run_dir=folder, config=SimpleNamespace(checkpoint=checkpoint), arguments=SimpleNamespace(resume=resume)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for updates in (10, 20, 30):
        (checkpoints / f"{updates:010d}.safetensors").touch()
    return tmp_path / "run"


def names(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in (folder / "checkpoints").glob("*.safetensors"))


def test_a_resumed_learner_goes_on_from_the_checkpoint_that_is_named(folder: Path) -> None:
    OwnFolder(learner(folder, "0000000020.safetensors")).release()
    assert names(folder) == [10, 20]
    assert (folder / "checkpoints" / "set-aside-1" / "0000000030.safetensors").exists()


@pytest.mark.parametrize(("restore", "resume"), [(None, True), ("latest", True), ("0000000020.safetensors", False)])
def test_others_leave_the_checkpoints_where_they_are(folder: Path, restore: str | None, resume: bool) -> None:
    OwnFolder(learner(folder, restore, resume=resume)).release()
    assert names(folder) == [10, 20, 30]


def test_a_checkpoint_that_is_not_there_changes_nothing(folder: Path) -> None:
    for _ in range(2):  # the folder is free again
        with pytest.raises(CheckpointError, match=r"0000000025.safetensors does not exist"):
            OwnFolder(learner(folder, "0000000025.safetensors"))
    assert names(folder) == [10, 20, 30]
