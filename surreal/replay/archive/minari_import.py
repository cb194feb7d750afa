"""Datasets of Minari (minari.farama.org), read into archives: for `surreal replay convert`, `import`, and `--offline`.

An episode is read, checked and written at a time. The archive appears when everything has been checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import surreal
from surreal.base.errors import CodecError, ConfigError
from surreal.base.specs import ArraySpec, ObsSpec, action_spec
from surreal.base.values import unsound_rows
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.data_contract import Contract
from surreal.distributed.experience.payload import stored_bytes
from surreal.replay.archive.files import ArchiveWriter, ReplayArchive
from surreal.replay.archive.manifest import Manifest

#: How the id of a dataset of Minari begins, where a path could stand: `minari:mujoco/hopper/expert-v0`.
PREFIX = "minari:"
#: Bounds of a chunk, which also bound what an import sends at once.
_CHUNK_STEPS, _CHUNK_BYTES = 1000, 1 << 19
#: The sender of a dataset, as archives name senders.
_SENDER = "minari"
#: What Minari and h5py raise about files that are cut off, changed, or of another kind.
_BROKEN = (OSError, KeyError, ValueError, TypeError, AttributeError, AssertionError, RuntimeError, MemoryError)


class DatasetSize(NamedTuple):
    """Size of a dataset by its metadata, with the names of a manifest."""

    steps: int
    stored_bytes: int  #: the most that its chunks take in Redis


class Episode(NamedTuple):
    """One episode of T steps, as arrays of the contract's dtypes."""

    leaves: list[NDArray[Any]]  #: [T + 1, *leaf_shape] for each leaf of the observations
    action: NDArray[Any]  #: [T, *action_shape]
    reward: NDArray[np.float32]  #: [T]
    is_terminated: bool  #: whether it ended in a terminal state; otherwise, it was cut


def require_minari() -> Any:
    """Import Minari; raises `ConfigError` if it is not installed."""
    try:
        import h5py  # noqa: F401 - most datasets need it
        import minari
    except ImportError as error:
        raise ConfigError('datasets of Minari need its package: pip install "surreal-rl[minari]"') from error
    return minari


def is_dataset(source: str) -> bool:
    """Whether a text names a dataset of Minari: by its id, or by its folder."""
    return source.startswith(PREFIX) or _data_folder(Path(source)) is not None


@contextmanager
def open_archive(source: str, *, lookahead: int = 0) -> Iterator[ReplayArchive]:
    """Open an archive's folder, or a dataset as an archive for now; raises `ConfigError` or `CodecError`."""
    if not is_dataset(source):
        yield ReplayArchive(Path(source))
        return
    with TemporaryDirectory(prefix="surreal-dataset-") as folder:
        convert_dataset(source, Path(folder, "archive"), lookahead=lookahead)
        yield ReplayArchive(Path(folder, "archive"))


def size_of(source: str, *, lookahead: int = 0) -> DatasetSize | Manifest:
    """Return how much `open_archive` would open, from its manifest or metadata; raises the same."""
    if not is_dataset(source):
        return ReplayArchive(Path(source)).manifest
    contract, _, counts, _ = _open(require_minari(), source, lookahead)
    steps, size = counts["total_steps"], _chunk_steps(contract)
    chunks = counts["total_episodes"] + steps // size
    rows = steps + chunks * (1 + lookahead)
    # The sizes of the allocator are at most a quarter apart.
    return DatasetSize(steps, chunks * stored_bytes(0, 0) + math.ceil(1.25 * rows * contract.row_bytes))


def convert_dataset(source: str, path: Path, *, lookahead: int = 0) -> Manifest:
    """Write a dataset of Minari into a new archive.

    Rewards become float32. Infos and seeds are left out.

    Args:
        source: `minari:ID` of a dataset in Minari's folder on this machine, or the folder of a dataset.
        path: folder of the archive; it must not exist.
        lookahead: steps repeated at the end of each chunk, for n-step returns of n - 1 steps.

    Raises:
        ConfigError: Minari is not installed, there is no such dataset, or the path cannot be written.
        CodecError: the dataset is broken, or holds what cannot be learned from; names episode and step. Nothing is
            written then.
    """
    minari = require_minari()
    contract, action_space, counts, folder = _open(minari, source, lookahead)
    steps = sequence = episodes = 0
    with ArchiveWriter(path, contract) as writer:
        for number, raw in enumerate(_episodes(minari, folder, source, counts["total_episodes"])):
            episode = _checked(f"{source}, episode {number}", raw, contract, action_space)
            for chunk in _chunks(contract, episode):
                sequence += 1
                writer.add(chunk, sender=_SENDER, sequence=sequence)
            steps, episodes = steps + len(episode.reward), episodes + 1
        if (episodes, steps) != (counts["total_episodes"], counts["total_steps"]) or not steps:
            raise CodecError(f"{source} has {steps} steps in {episodes} episodes; its metadata promise {counts}")
        # Not the time of now: an archive made again is the same, so an interrupted import continues.
        created = (folder / "metadata.json").stat().st_mtime
        return writer.finish(run=source, created=created, surreal_version=surreal.__version__, global_step=steps)


def _open(minari: Any, source: str, lookahead: int) -> tuple[Contract, gymnasium.Space[Any], dict[str, int], Path]:
    """Read the metadata: the contract, the space of actions, the counts of episodes and steps, and the folder."""
    folder = _find(minari, source)
    observation_space, action_space, counts = _read_spaces(minari, folder)
    try:
        contract = Contract(ObsSpec.from_space(observation_space), action_spec(action_space), lookahead=lookahead)
    except ValueError as error:
        raise CodecError(f"{source}: {error}") from error
    return contract, action_space, counts, folder


def _data_folder(path: Path) -> Path | None:
    return next((folder for folder in (path, path / "data") if (folder / "metadata.json").is_file()), None)


def _find(minari: Any, source: str) -> Path:
    path = Path(source)
    if source.startswith(PREFIX):
        try:
            path = Path(minari.storage.datasets_root_dir.get_dataset_path(source.removeprefix(PREFIX)))
        except _BROKEN as error:
            raise ConfigError(f"{source} is not an id of Minari: {error}", key="SOURCE") from error
    folder = _data_folder(path)
    if folder is None:
        raise ConfigError(
            f"{source} is not there: {path} has no metadata.json; download it with: minari download ID", key="SOURCE"
        )
    return folder


def _read_spaces(minari: Any, folder: Path) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any], dict[str, int]]:
    """Read both spaces and the counts of episodes and steps.

    Minari makes the environment where a space is missing, which would execute what the file names, so this is refused.
    """
    try:
        metadata = json.loads((folder / "metadata.json").read_bytes())
        texts = [metadata[name] for name in ("observation_space", "action_space")]
        observation_space, action_space = (minari.serialization.deserialize_space(text) for text in texts)
        counts = {name: metadata[name] for name in ("total_episodes", "total_steps")}
    except (*_BROKEN, NotImplementedError, RecursionError) as error:
        raise CodecError(f"{folder}/metadata.json has no spaces or counts that can be read ({error!r})") from error
    if any(type(count) is not int or count < 0 for count in counts.values()):
        raise CodecError(f"{folder}/metadata.json has the counts {counts}; they must be integers >= 0")
    return observation_space, action_space, counts


def _episodes(minari: Any, folder: Path, source: str, count: int) -> Iterator[Mapping[str, Any]]:
    number = 0
    try:
        storage = minari.dataset.minari_storage.MinariStorage.read(folder)
        for raw in storage.get_episodes(range(count)):
            yield raw
            number += 1
    except (*_BROKEN, ImportError) as error:
        raise CodecError(f"{source}, episode {number}, cannot be read: {error!r}") from error


def _checked(where: str, raw: Mapping[str, Any], contract: Contract, action_space: gymnasium.Space[Any]) -> Episode:
    """Check an episode against the contract and the space of actions, and name the first row that does not fit."""
    reward, *flags = (np.asarray(raw[name]) for name in ("rewards", "terminations", "truncations"))
    steps = len(reward) if reward.ndim else 0
    if not steps or reward.dtype.kind not in "fiu" or reward.ndim != 1:
        raise CodecError(f"{where}: rewards are {reward.dtype} {reward.shape}; they must be numbers [T], T >= 1")
    for name, flag in zip(("terminations", "truncations"), flags, strict=True):
        if flag.dtype != np.bool_ or flag.shape != (steps,):
            raise CodecError(f"{where}: {name} are {flag.dtype} {flag.shape}; they must be bool [{steps}]")
        if flag[:-1].any():
            raise CodecError(f"{where}, step {int(flag.argmax())}: {name} is true before the last step")
    if not (flags[0][-1] or flags[1][-1]):
        raise CodecError(f"{where}, step {steps - 1}: the last step is neither terminated nor truncated")
    try:
        leaves = contract.obs.split(raw["observations"])
    except (ValueError, KeyError, TypeError) as error:
        raise CodecError(f"{where}: {error}") from error
    columns = [("action", contract.action, raw["actions"], steps)]
    columns += [(f"observation {leaf.name}".rstrip(), leaf, array, steps + 1) for leaf, array in zip(
        contract.obs.leaves, leaves, strict=True
    )]  # fmt: skip
    arrays = [_column(where, *column) for column in columns]
    _check_actions(where, action_space, arrays[0])
    rewards = _column(where, "reward", ArraySpec("reward", (), reward.dtype), reward, steps).astype(np.float32)
    return Episode(arrays[1:], arrays[0], rewards, bool(flags[0][-1]))


def _column(where: str, name: str, spec: ArraySpec, found: Any, rows: int) -> NDArray[Any]:
    array = np.asarray(found)
    if array.dtype != spec.dtype or array.shape != (rows, *spec.shape):
        raise CodecError(
            f"{where}: {name} is {array.dtype} {array.shape}; its space needs {spec.dtype} {(rows, *spec.shape)}"
        )
    bad = unsound_rows(array)
    if bad.any():
        row = int(bad.argmax())
        raise CodecError(f"{where}, step {row}: {name} is {array[row].tolist()}; numbers must be finite")
    return array


def _check_actions(where: str, space: gymnasium.Space[Any], action: NDArray[Any]) -> None:
    if isinstance(space, spaces.Discrete):
        low, high = np.int64(space.start), np.int64(space.start + space.n - 1)
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1  # type: ignore[assignment]
    elif isinstance(space, spaces.Box):
        low, high = space.low, space.high  # type: ignore[assignment]
    else:
        low, high = np.int64(0), np.int64(1)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) and np.any(low != 0):
        raise CodecError(f"{where}: actions are {space}; they must begin at 0")
    bad = ((action < low) | (action > high)).reshape(len(action), -1).any(1)
    if bad.any():
        row = int(bad.argmax())
        raise CodecError(f"{where}, step {row}: action is {action[row].tolist()}, which is not in {space}")


def _chunk_steps(contract: Contract) -> int:
    return max(1, min(_CHUNK_STEPS, _CHUNK_BYTES // contract.row_bytes))


def _chunks(contract: Contract, episode: Episode) -> Iterator[Chunk]:
    """Cut an episode into chunks, whose segments end with the lookahead, and one more observation."""
    total = len(episode.reward)
    size = _chunk_steps(contract)
    flags = np.zeros(total, np.uint8)
    flags[-1] = 1 if episode.is_terminated else 2
    for begin in range(0, total, size):
        own = min(size, total - begin)
        steps = slice(begin, min(begin + own + contract.lookahead, total))
        rows = steps.stop - begin + 1
        columns = {"action": episode.action[steps], "reward": episode.reward[steps], "flags": flags[steps]}
        columns["version"] = np.full(rows - 1, -1, np.int32)
        yield Chunk(
            segments=np.array([[rows, own, 0, begin, 0]], np.int32),
            columns=columns,
            extras={},
            leaves=[leaf[begin : begin + rows] for leaf in episode.leaves],
            own_steps=own,
            stored_bytes=stored_bytes(0, rows * contract.row_bytes),
        )
