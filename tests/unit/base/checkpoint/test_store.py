from __future__ import annotations

import json
import logging
import math
import os
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from surreal.base.checkpoint import CheckpointStore, check_tensors, load_checkpoint, save_checkpoint
from surreal.base.errors import CheckpointError, DivergedError
from tests.examples import examples


def some_tensors(fill: float = 1.0) -> dict[str, Tensor]:
    return {
        "model/weight": torch.full((3, 4), fill),
        "optimizer/weight/step": torch.tensor(fill),
        "flags": torch.tensor([True, False]),
        "half": torch.tensor([0.1, 0.2], dtype=torch.bfloat16),
        "empty": torch.zeros(0, 5),
        "turned": torch.arange(6).reshape(2, 3).t(),
    }


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype
        assert torch.equal(tensor, theirs[name]), name


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "run" / "checkpoints")
        return
    url = f"memory://{uuid.uuid4().hex}/checkpoints"
    yield url
    fsspec.filesystem("memory").rm(url, recursive=True)


def test_round_trip_keeps_tensors_and_metadata(folder: str) -> None:
    metadata = {"state": {"updates": 7, "rate": 1e-3, "none": None, "list": [1, "a", True]}, "config": {"name": "x"}}
    path = CheckpointStore(folder).save(120, some_tensors(), metadata)
    checkpoint = load_checkpoint(path)
    assert_same(checkpoint.tensors, some_tensors())
    assert checkpoint.metadata == metadata
    assert (checkpoint.step, checkpoint.path) == (120, path)
    assert path.endswith("/0000000120.safetensors")


def test_last_ones_are_kept_and_the_newest_is_found(folder: str) -> None:
    store = CheckpointStore(folder, keep=2)
    assert store.newest_whole() is None
    for step in (5, 300, 20, 1000):
        store.save(step, some_tensors(step), {})
    assert store.names() == ["0000000300.safetensors", "0000001000.safetensors"]
    newest = store.newest_whole()
    assert newest is not None
    assert newest.step == 1000
    assert store.load("0000000300.safetensors").step == 300
    assert store.load(f"{folder}/0000000300.safetensors").step == 300


def test_saving_a_step_again_replaces_it_and_leaves_nothing_else(folder: str) -> None:
    store = CheckpointStore(folder)
    store.save(1, some_tensors(1.0), {})
    store.save(1, some_tensors(2.0), {})
    assert_same(store.load("0000000001.safetensors").tensors, some_tensors(2.0))
    assert len(fsspec.core.url_to_fs(folder)[0].ls(folder)) == 1


def test_going_back_to_an_older_checkpoint_keeps_what_is_saved_then(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    store.save(100, some_tensors(), {})
    store.save(50, some_tensors(), {})
    assert "0000000050.safetensors" in store.names()


def test_one_cut_off_anywhere_is_never_restored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, some_tensors(1.0), {"a": 1})
    last = Path(store.save(2, some_tensors(2.0), {"a": 2}))
    whole = last.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    for size in {*range(9), *range(9, len(whole), 61), 8 + header - 1, 8 + header, 8 + header + 1, len(whole) - 1}:
        last.write_bytes(whole[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = store.newest_whole()
        assert found is not None
        assert found.step == 1, size
        assert "0000000002.safetensors is cut off" in caplog.text
    last.write_bytes(whole)
    restored = store.newest_whole()
    assert restored is not None
    assert restored.step == 2


def test_a_hole_of_zeros_is_noticed(tmp_path: Path) -> None:
    """What a power cut can leave of a file: the right size, but not the content."""
    path = Path(CheckpointStore(tmp_path).save(2, some_tensors(), {}))
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    path.write_bytes(whole[:start] + bytes(len(whole) - start))
    with pytest.raises(CheckpointError, match="its checksum is wrong"):
        load_checkpoint(path)


@examples(60)
@given(place=st.integers(min_value=0), value=st.integers(0, 255))
def test_a_changed_byte_gives_the_same_content_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    save_checkpoint(path, some_tensors(), {"a": 1}, step=3)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(data)
    try:
        found = load_checkpoint(path)
    except CheckpointError:
        return
    assert (found.step, found.metadata) == (3, {"a": 1})
    assert_same(found.tensors, some_tensors())


def test_nan_and_infinities_in_metadata_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, {}, {"scores": [math.nan, math.inf, -math.inf, 1.5], "best": (math.nan,)}, step=0)
    metadata = load_checkpoint(path).metadata
    assert math.isnan(metadata["scores"][0])
    assert metadata["scores"][1:] == [math.inf, -math.inf, 1.5]
    assert math.isnan(metadata["best"][0])
    header = path.read_bytes()
    assert b"NaN" not in header, "plain JSON, which any program reads"


@pytest.mark.parametrize("bad", [{"a": object()}, {"a": {1: 2}}, {"a": torch.zeros(1)}])
def test_metadata_that_is_not_json_is_refused(tmp_path: Path, bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="metadata"):
        save_checkpoint(tmp_path / "x.safetensors", {}, bad, step=0)
    assert list(tmp_path.iterdir()) == []


def test_tensors_that_share_memory_are_saved_each_for_itself(tmp_path: Path) -> None:
    base = torch.arange(6.0)
    save_checkpoint(tmp_path / "x.safetensors", {"all": base, "part": base[2:4], "again": base}, {}, step=0)
    tensors = load_checkpoint(tmp_path / "x.safetensors").tensors
    assert_same(tensors, {"all": base, "part": base[2:4], "again": base})


def test_failed_write_leaves_the_old_checkpoint_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, some_tensors(1.0), {})

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CheckpointError, match=r"could not be written: .*No space left"):
        store.save(1, some_tensors(2.0), {})
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001.safetensors"]
    assert_same(store.load("0000000001.safetensors").tensors, some_tensors(1.0))


def test_rest_of_a_killed_writer_is_removed_and_other_files_are_left(tmp_path: Path) -> None:
    rest = tmp_path / f".0000000001.safetensors.{uuid.uuid4().hex}.tmp"
    rest.write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    CheckpointStore(tmp_path).save(2, {}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000002.safetensors", "notes.txt"]


def write_other(path: Path, **header: str) -> Path:
    path.write_bytes(safetensors.torch.save({"a": torch.zeros(1)}, header))
    return path


def test_other_files_are_refused_in_one_clear_sentence(tmp_path: Path) -> None:
    plain, newer, damaged, nested = (tmp_path / name for name in "abcd")
    ours = {"format": "surreal-checkpoint", "version": "2", "step": "1", "checksum": "0"}
    write_other(plain)
    write_other(newer, **(ours | {"version": "3"}))
    write_other(damaged, **(ours | {"metadata": "{"}))
    write_other(nested, **(ours | {"metadata": "[" * 100_000}))
    pickled = tmp_path / "e"
    pickled.write_bytes(pickle.dumps({"a": 1}))
    huge = tmp_path / "f"
    huge.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    for path, message in [
        (plain, "not a Surreal checkpoint"),
        (newer, "has version '3'; this program reads 2"),
        (damaged, "metadata cannot be read"),
        (nested, "metadata cannot be read"),
        (pickled, "not a safetensors file"),
        (huge, "not a safetensors file"),
        (tmp_path / "missing", "does not exist"),
        (tmp_path, "cannot be read"),
    ]:
        with pytest.raises(CheckpointError, match=message) as raised:
            load_checkpoint(path)
        assert str(path) in str(raised.value)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint("nosuchprotocol://x/y")


def test_first_tensor_that_differs_is_named() -> None:
    ours = {"a": torch.zeros(2), "b": torch.zeros(2, 3), "c": torch.zeros(1)}
    check_tensors(ours, dict(ours), "model")
    with pytest.raises(CheckpointError, match=r"model/b is float32\[3, 3\], but this model has float32\[2, 3\]"):
        check_tensors(ours, ours | {"b": torch.zeros(3, 3), "c": torch.zeros(9)}, "model")
    with pytest.raises(CheckpointError, match=r"model/a is int64\[2\]"):
        check_tensors(ours, ours | {"a": torch.zeros(2, dtype=torch.int64)}, "model")
    with pytest.raises(CheckpointError, match="it has no tensor model/c"):
        check_tensors(ours, {"a": ours["a"], "b": ours["b"]}, "model")
    with pytest.raises(CheckpointError, match="this model has no tensor model/d"):
        check_tensors(ours, ours | {"d": torch.zeros(1)}, "model")


def test_arguments_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^keep is 0; it must be >= 1$"):
        CheckpointStore(tmp_path, keep=0)
    with pytest.raises(ValueError, match="step is -1"):
        CheckpointStore(tmp_path).save(-1, {}, {})


def test_file_is_plain_safetensors(tmp_path: Path) -> None:
    """Other programs can read the weights without this package."""
    path = tmp_path / "x.safetensors"
    save_checkpoint(path, some_tensors(), {"a": 1}, step=9)
    with safetensors.safe_open(path, framework="pt") as file:
        header = file.metadata()
        assert torch.equal(file.get_tensor("model/weight"), some_tensors()["model/weight"])
    assert (header["format"], header["step"], json.loads(header["metadata"])) == ("surreal-checkpoint", "9", {"a": 1})


def test_a_checkpoint_that_is_not_finite_is_neither_written_nor_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path, keep=5)
    store.save(1, {"a": torch.ones(2)}, {})
    bad = {"a": torch.tensor([1.0, torch.nan])}
    with pytest.raises(DivergedError, match="is not written: a holds nan"):
        store.save(2, bad, {})
    with monkeypatch.context() as earlier:  # a program that did not look
        earlier.setattr("surreal.base.checkpoint.format.name_not_finite", lambda tensors: "")
        path = store.save(3, bad, {})
    with pytest.raises(CheckpointError, match="cannot be used: a holds nan"):
        store.load(path)
    found = store.newest_whole()
    assert found is not None
    assert found.step == 1
