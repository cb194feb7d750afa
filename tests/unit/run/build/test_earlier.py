"""Going back to an earlier checkpoint of a run: the later ones are kept elsewhere."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import fsspec
import pytest

from surreal.base.checkpoint.store import CheckpointStore
from surreal.base.errors import CheckpointError
from surreal.config import Config, load_config
from surreal.run.build.checkpoints import earlier_checkpoint, go_back

NAME = "0000000100.safetensors"


def restoring(restore: str | None, *stores: str) -> Config:
    stores_setting = f"checkpoint.stores={json.dumps(['run', *stores])}"
    return load_config("cartpole-dqn", [f"checkpoint.restore={json.dumps(restore)}", stores_setting])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    checkpoints = tmp_path / "run" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for updates in (20, 100, 3000, 40000):
        (checkpoints / f"{updates:010d}.safetensors").touch()
    (checkpoints / "notes.txt").touch()
    return tmp_path / "run"


def write_rounds(run: Path, **means: float) -> None:
    (run / "eval").mkdir()
    lines = [
        {"kind": "round", "time": float(number), "updates": int(updates[1:]), "mean_return": mean}
        for number, (updates, mean) in enumerate(means.items())
    ]
    (run / "eval" / "scores.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_only_a_checkpoint_of_the_run_itself_counts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    for setting in (NAME, f"checkpoints/{NAME}", f"{run}/checkpoints/{NAME}", f"{run}/eval/../checkpoints/{NAME}"):
        assert earlier_checkpoint(restoring(setting), run) == NAME, setting
    for other in (None, "latest", "eval/best.safetensors", "best.safetensors", f"s3://bucket/{NAME}", f"/x/{NAME}"):
        assert earlier_checkpoint(restoring(other), run) is None, other


def test_a_checkpoint_that_is_nowhere_is_refused_and_nothing_moves(run: Path) -> None:
    with pytest.raises(CheckpointError, match=r"0000000025.safetensors does not exist in .*checkpoints"):
        go_back(restoring("0000000025.safetensors"), run)
    assert CheckpointStore(run / "checkpoints").steps() == [20, 100, 3000, 40000]


def test_later_ones_are_set_aside_and_never_mixed(run: Path) -> None:
    checkpoints = run / "checkpoints"
    later = f"later checkpoints are now in {checkpoints}/set-aside-1"
    assert go_back(restoring(NAME), run) == f"continuing from {NAME}; {later}"
    assert CheckpointStore(checkpoints / "set-aside-1").steps() == [3000, 40000]
    assert go_back(restoring(NAME), run) == f"continuing from {NAME}"
    (checkpoints / "0000003000.safetensors").touch()
    assert "set-aside-2" in go_back(restoring("0000000020.safetensors"), run)
    left = {path.name for path in checkpoints.iterdir()}
    assert left == {"0000000020.safetensors", "notes.txt", "set-aside-1", "set-aside-2"}


def test_later_ones_elsewhere_are_set_aside_too(run: Path) -> None:
    store = f"memory://{uuid.uuid4().hex}"
    elsewhere = CheckpointStore(f"{store}/run/checkpoints", keep=9)
    for step in (100, 5000):
        elsewhere.put(step, b"any")
    for path in (run / "checkpoints").glob("*.safetensors"):
        path.unlink()  # a fresh machine
    try:
        go_back(restoring(f"{elsewhere.folder}/{NAME}", store), run)
        assert elsewhere.steps() == [100]
        assert CheckpointStore(f"{elsewhere.folder}/set-aside-1").steps() == [5000]
    finally:
        fsspec.filesystem("memory").rm(store, recursive=True)


def test_the_best_is_that_of_the_best_rounds(run: Path) -> None:
    write_rounds(run, u30=5.0, u90=9.0, u110=7.0, u3100=6.0, u50000=99.0)  # nobody knows what the last one came to
    assert earlier_checkpoint(restoring("best"), run) == NAME
    go_back(restoring("best"), run)
    assert CheckpointStore(run / "checkpoints").steps() == [20, 100]


def test_without_scores_there_is_no_best(run: Path) -> None:
    with pytest.raises(CheckpointError, match="has a score, so none is the best"):
        go_back(restoring("best"), run)
