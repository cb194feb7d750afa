"""Pretrained policies of a folder: found by name, compared with their digests, and refused with what is wrong."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import surreal
from surreal.base.checkpoint import load_checkpoint, save_checkpoint
from surreal.base.errors import CheckpointError, ConfigError
from surreal.config import preset_names
from surreal.run.build.saved_policy import MAX_BYTES, installed_folder, read_index, read_pretrained
from tests.policies import write_policy

NUMBERS = {"mean_return": 20.0, "standard_error": 0.5, "episodes": 100, "env_steps": 7, "seed": 3}


def write_index(folder: Path, *names: str, **changes: Any) -> None:
    entries = {
        name: {"sha256": hashlib.sha256((folder / f"{name}.safetensors").read_bytes()).hexdigest(), **NUMBERS}
        for name in names
    }
    (folder / "index.json").write_text(json.dumps({"version": 1, "policies": entries} | changes))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the policy `small`."""
    write_policy(tmp_path / "place" / "small.safetensors", "cartpole-dqn", "model.args.hidden_sizes=[8]")
    write_index(tmp_path / "place", "small")
    return tmp_path / "place"


def test_a_policy_is_found_by_its_name_in_the_place_that_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert surreal.load("small", policies=str(place)).config.model.args["hidden_sizes"] == [8]
    with pytest.raises(ConfigError, match=r"small is neither a run below runs nor a policy of .*policies; "):
        surreal.load("small")
    monkeypatch.setenv("SURREAL_POLICIES", f"{place}/")
    found = surreal.load("small")
    assert (found.version, found.saved.path) == (7, "small")
    assert surreal.evaluate(found, episodes=2, seed=0).mean_return > 0.0


def test_a_run_has_precedence_and_its_name_is_advised_as_well(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SURREAL_POLICIES", str(place))
    write_policy(tmp_path / "runs" / "small" / "eval" / "best.safetensors", "cartpole-dqn")
    (tmp_path / "runs" / "small" / "run.id").write_text("small")
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "other" / "run.id").write_text("other")
    assert surreal.load("small").config.model.args["hidden_sizes"] != [8]
    with pytest.raises(ConfigError, match=r"did you mean other\?"):
        surreal.load("othar")
    with pytest.raises(ConfigError, match=r"did you mean small\?"):
        surreal.load("smal")


def test_a_file_that_is_not_that_of_the_index_is_refused_before_it_is_read(place: Path) -> None:
    path = place / "small.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    for changed in (bytes(data), b"not a policy"):
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"place/small\.safetensors is damaged, or is not the file"):
            read_pretrained("small", str(place))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "index.json cannot be used: the file: Input should be an object"),
        ("{", "index.json cannot be used: the file: Invalid JSON"),
        ("[" * 100_000, "index.json cannot be used: the file: Invalid JSON"),
        ({"version": 2}, "cannot be used: version: Input should be 1"),
        ({"policies": {"../small": {"sha256": "0" * 64, **NUMBERS}}}, "cannot be used: policies.../small"),
        ({"policies": {"small": {"sha256": "0", **NUMBERS}}}, "used: policies.small.sha256: String should match"),
        (" " * (MAX_BYTES + 1), "index.json has more than 1,000,000 bytes"),
    ],
)  # fmt: skip
def test_an_index_that_cannot_be_used_is_refused(place: Path, index: Any, message: str) -> None:
    if isinstance(index, str):
        (place / "index.json").write_text(index)
    else:
        write_index(place, "small", **index)
    with pytest.raises(CheckpointError) as refused:
        read_pretrained("small", str(place))
    assert message in str(refused.value)


def test_what_is_missing_or_too_large_is_named(place: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere/index\.json does not exist; SURREAL_POLICIES names the place"):
        read_pretrained("small", str(place / "nowhere"))
    with (place / "small.safetensors").open("r+b") as file:
        file.truncate(10**12)  # takes no space on the disk
    with pytest.raises(CheckpointError, match=r"small\.safetensors has more than 1,000,000 bytes"):
        read_pretrained("small", str(place))
    (place / "small.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"small\.safetensors does not exist"):
        read_pretrained("small", str(place))


@pytest.mark.parametrize("place", ["http://localhost:1", "ftp://localhost", "s3://bucket/policies", "file:///tmp"])
def test_other_addresses_are_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=f"from a folder or an https address, but SURREAL_POLICIES .* is {place}"):
        read_pretrained("small", place)


def test_a_class_of_a_stranger_is_not_imported_although_the_digest_is_right(place: Path) -> None:
    checkpoint = load_checkpoint(place / "small.safetensors")
    checkpoint.metadata["config"]["env"]["wrappers"] = [{"class": "tests.never_imported.Wrapper"}]
    save_checkpoint(place / "small.safetensors", checkpoint.tensors, checkpoint.metadata, step=0)
    write_index(place, "small")
    with pytest.raises(ConfigError, match=r"small would import tests\.never_imported\.Wrapper"):
        surreal.load("small", policies=str(place))


def test_policies_of_the_installation_are_those_of_the_index_and_of_presets() -> None:
    folder = installed_folder()
    known = read_index(str(folder)).policies
    assert {path.stem for path in folder.glob("*.safetensors")} == set(known) <= set(preset_names())
    for name in known:
        checkpoint = read_pretrained(name, str(folder))
        assert checkpoint.metadata["config"]["name"] == name
        assert checkpoint.metadata["config"]["python_path"] == []
    assert surreal.evaluate(surreal.load("cartpole-ppo"), episodes=5, seed=0).mean_return == 500.0
