"""Going back to an earlier checkpoint of a run: the later ones are kept elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.main.build.earlier import earlier_checkpoint, set_later_aside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    for updates in (20, 100, 3000, 40000):
        (tmp_path / "checkpoints" / f"{updates:010d}.safetensors").touch()
    (tmp_path / "checkpoints" / "notes.txt").touch()
    return tmp_path


def test_only_a_checkpoint_of_the_runs_own_folder_counts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "0000000100.safetensors"
    wanted = folder / "checkpoints" / name
    for setting in (name, f"checkpoints/{name}", str(wanted), f"{folder}/eval/../checkpoints/{name}"):
        assert earlier_checkpoint(setting, folder) == wanted, setting
    for other in (None, "latest", "eval/best.safetensors", "best.safetensors", f"s3://bucket/{name}", f"/x/{name}"):
        assert earlier_checkpoint(other, folder) is None, other


def test_later_ones_are_set_aside_and_never_mixed(folder: Path) -> None:
    checkpoints = folder / "checkpoints"
    first = set_later_aside(checkpoints / "0000000100.safetensors")
    assert first == checkpoints / "set-aside-1"
    assert sorted(path.name for path in first.iterdir()) == ["0000003000.safetensors", "0000040000.safetensors"]
    assert set_later_aside(checkpoints / "0000000100.safetensors") is None
    (checkpoints / "0000003000.safetensors").touch()
    assert set_later_aside(checkpoints / "0000000020.safetensors") == checkpoints / "set-aside-2"
    left = {path.name for path in checkpoints.iterdir()}
    assert left == {"0000000020.safetensors", "notes.txt", "set-aside-1", "set-aside-2"}
