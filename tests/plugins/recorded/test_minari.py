"""Datasets of Minari: imported and exported, they are equal step for step; broken ones are refused as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import CodecError, ConfigError
from surreal.cli.program import main
from surreal.plugins.recorded.minari_export import export_dataset
from surreal.replay.archive import ReplayArchive
from surreal.replay.archive.minari_import import convert_dataset, size_of

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:minari")

BOX, ACTIONS = spaces.Box(-9.0, 9.0, (3,), np.float64), spaces.Box(-2.0, 2.0, (2,), np.float32)
NESTED = spaces.Dict({"image": spaces.Box(0, 255, (40, 40), np.uint8), "pair": spaces.Tuple((BOX, spaces.Discrete(4)))})
SOURCE = "minari:made/up-v0"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "minari"


def draw(space: Any, rng: np.random.Generator, rows: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: draw(child, rng, rows) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(draw(child, rng, rows) for child in space)
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, space.n, rows)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(0, space.nvec, (rows, *space.shape))
    return rng.uniform(space.low, space.high, (rows, *space.shape)).astype(space.dtype)


def write(
    lengths: tuple[int, ...] = (5, 1200, 3),
    *,
    obs: Any = BOX,
    action: Any = ACTIONS,
    name: str = "made/up-v0",
    data_format: str | None = None,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
) -> Any:
    """Write a dataset with Minari's own package; `change` gets the columns of its second episode."""
    rng, buffers = np.random.default_rng(0), []
    for number, length in enumerate(lengths):
        columns = {
            "observations": draw(obs, rng, length + 1),
            "actions": draw(action, rng, length),
            "rewards": rng.normal(size=length).astype(np.float32),
            "terminations": np.arange(length) == (length - 1 if number % 2 else -1),
            "truncations": np.arange(length) == (-1 if number % 2 else length - 1),
        }
        if number == 1:
            change(columns)
        buffers.append(minari.data_collector.episode_buffer.EpisodeBuffer(**columns))
    return minari.create_dataset_from_buffers(
        name, buffers, observation_space=obs, action_space=action, data_format=data_format, jpeg_encoding=False
    )


def assert_equal(first: Any, second: Any) -> None:
    if isinstance(first, dict | tuple):
        assert type(first) is type(second) and len(first) == len(second)
        for key in first if isinstance(first, dict) else range(len(first)):
            assert_equal(first[key], second[key])
    else:
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("lookahead", [0, 4])
@pytest.mark.parametrize(
    ("obs", "action"), [(BOX, ACTIONS), (NESTED, spaces.Discrete(3)), (BOX, spaces.MultiDiscrete([2, 3]))]
)
def test_a_dataset_imported_and_exported_is_equal_step_for_step(
    tmp_path: Path, obs: Any, action: Any, lookahead: int
) -> None:
    before = write(obs=obs, action=action)
    manifest = convert_dataset(SOURCE, tmp_path / "archive", lookahead=lookahead)
    assert manifest.steps == 1208 and manifest.contract.lookahead == lookahead
    size = size_of(SOURCE, lookahead=lookahead)
    assert size.steps == 1208 and manifest.stored_bytes <= size.stored_bytes < 1.5 * manifest.stored_bytes
    written = export_dataset(ReplayArchive(tmp_path / "archive"), "minari:made/again-v0", obs, action)
    assert (written.episodes, written.steps, written.cut) == (3, 1208, 0)
    after = minari.load_dataset("made/again-v0")
    for name in ("observation_space", "action_space", "total_episodes", "total_steps"):
        assert getattr(before.spec, name) == getattr(after.spec, name)
    for ours, theirs in zip(before.iterate_episodes(), after.iterate_episodes(), strict=True):
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            assert_equal(getattr(ours, name), getattr(theirs, name))


def test_a_dataset_in_arrow_files_is_the_same_archive(tmp_path: Path) -> None:
    write(obs=NESTED)
    write(obs=NESTED, name="made/arrow-v0", data_format="arrow")
    first = convert_dataset(SOURCE, tmp_path / "hdf5")
    second = convert_dataset("minari:made/arrow-v0", tmp_path / "arrow")
    assert [file.sha256 for file in first.files] == [file.sha256 for file in second.files]


def test_a_dataset_converted_again_is_the_same_archive(tmp_path: Path) -> None:
    write()
    first, second = (convert_dataset(SOURCE, tmp_path / name) for name in ("one", "two"))
    assert first.id == second.id


def cell(name: str, row: int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(columns: dict[str, Any]) -> None:
        columns[name][row] = value

    return change


def column(name: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    return lambda columns: columns.update({name: make(columns[name])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cell("observations", 3, np.nan), "episode 1, step 3: observation is .*nan.*; numbers must be finite"),
        (cell("rewards", 7, np.inf), "episode 1, step 7: reward is inf"),
        (cell("actions", 2, 2.5), "episode 1, step 2: action is .2.5, 2.5., which is not in Box"),
        (cell("terminations", 4, True), "episode 1, step 4: terminations is true before the last step"),
        (cell("terminations", -1, False), "episode 1, step 8: the last step is neither terminated nor truncated"),
        (column("observations", lambda each: each[:-1]), r"observation is float64 \(9, 3\); its space needs .*10, 3"),
        (column("observations", lambda each: each.astype(np.float32)), "observation is float32 .* needs float64"),
        (column("actions", lambda each: each[:, :1]), r"action is float32 \(9, 1\); its space needs float32 \(9, 2\)"),
        (column("truncations", lambda each: each.astype(np.int64)), r"truncations are int64 \(9,\); they must be bool"),
        (column("rewards", lambda each: each[:4]), r"terminations are bool \(9,\); they must be bool \[4\]"),
    ],
)
def test_rows_that_do_not_fit_are_named_and_nothing_is_written(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    write((5, 9, 3), change=change)
    with pytest.raises(CodecError, match=message):
        convert_dataset(SOURCE, tmp_path / "archive")
    assert not [path for path in tmp_path.iterdir() if "archive" in path.name]


def cut_off(data: Path) -> None:
    whole = (data / "main_data.hdf5").read_bytes()
    (data / "main_data.hdf5").write_bytes(whole[: len(whole) // 2])


def without_an_episode(data: Path) -> None:
    with h5py.File(data / "main_data.hdf5", "a") as file:
        del file["episode_1"]


def without_a_column(data: Path) -> None:
    with h5py.File(data / "main_data.hdf5", "a") as file:
        del file["episode_1"]["rewards"]


def metadata(**changes: Any) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        found = json.loads((data / "metadata.json").read_text()) | changes
        (data / "metadata.json").write_text(
            json.dumps({name: value for name, value in found.items() if value is not None})
        )

    return change


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (cut_off, "episode 0, cannot be read"),
        (lambda data: (data / "main_data.hdf5").write_bytes(b"no HDF5"), "episode 0, cannot be read"),
        (lambda data: (data / "main_data.hdf5").unlink(), "episode 0, cannot be read"),
        (without_an_episode, "episode 1, cannot be read"),
        (without_a_column, "episode 1, cannot be read"),
        (lambda data: (data / "metadata.json").write_text("{"), "has no spaces or counts"),
        (metadata(action_space=None), "has no spaces or counts"),  # Minari would make the environment it names
        (metadata(action_space='{"type": "Graph"}'), "has no spaces or counts|cannot be read"),
        (metadata(total_steps=99), "17 steps in 3 episodes; its metadata promise"),
        (metadata(total_episodes=2), "14 steps in 2 episodes; its metadata promise"),
        (metadata(total_episodes="3"), "must be integers >= 0"),
        (metadata(data_format="zip"), "cannot be read"),
    ],
)
def test_broken_files_are_refused_and_nothing_is_written(
    root: Path, tmp_path: Path, breaks: Callable[[Path], object], message: str
) -> None:
    write((5, 9, 3))
    breaks(root / "made" / "up-v0" / "data")
    with pytest.raises(CodecError, match=message):
        convert_dataset(SOURCE, tmp_path / "archive")
    assert not [path for path in tmp_path.iterdir() if "archive" in path.name]


def test_what_is_not_there_or_there_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="minari:made/up-v0 is not there"):
        convert_dataset(SOURCE, tmp_path / "archive")
    write()
    convert_dataset(SOURCE, tmp_path / "archive")
    archive = ReplayArchive(tmp_path / "archive")
    with pytest.raises(ConfigError, match="exists already"):
        export_dataset(archive, SOURCE, BOX, ACTIONS)
    with pytest.raises(ConfigError, match="is not an id of Minari"):
        export_dataset(archive, "minari:no version", BOX, ACTIONS)
    with pytest.raises(ConfigError, match="does not hold observations"):
        export_dataset(archive, "minari:made/other-v0", BOX, spaces.Discrete(2))


def test_the_command_converts_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    env = gymnasium.make("Pendulum-v1")
    write((200, 50), obs=env.observation_space, action=env.action_space)
    assert main(["replay", "convert", SOURCE, "archive"]) == 0
    assert main(["replay", "convert", "archive", "minari:made/again-v0"]) == 2
    assert main(["replay", "convert", "archive", "minari:made/again-v0", "--env", "Pendulum-v1"]) == 0
    captured = capsys.readouterr()
    assert "250 steps in 2 chunks, in archive" in captured.out and "250 steps in 2 episodes" in captured.out
    assert "name it" in captured.err
