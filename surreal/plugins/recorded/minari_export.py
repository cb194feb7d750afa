"""Archives, written as datasets of Minari: what `surreal replay convert` and `export` do with `minari:ID`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import ConfigError
from surreal.base.specs import ObsSpec, action_spec
from surreal.replay.archive import ReplayArchive
from surreal.replay.archive.columns import ArchivedChunk
from surreal.replay.archive.minari_import import PREFIX, require_minari

_TERMINATED, _TRUNCATED = 1, 2


class Exported(NamedTuple):
    """The dataset that was written."""

    path: Path
    episodes: int
    steps: int
    cut: int  #: episodes whose beginning or end the archive does not have; their last steps count as truncated


class _Part(NamedTuple):
    """Consecutive steps of one environment."""

    leaves: list[NDArray[Any]]  #: observations of the steps, and the one after them
    columns: dict[str, NDArray[Any]]


def export_dataset(
    archive: ReplayArchive, target: str, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> Exported:
    """Write an archive's steps as a new dataset of Minari, in its folder on this machine.

    Episodes are in the order of their ends; those that are open are in memory. Columns that agents added are left out.

    Args:
        archive: it is verified.
        target: `minari:NAME-vN`, as Minari names datasets.
        observation_space: space of the environment, for Minari's metadata.
        action_space: likewise.

    Raises:
        ConfigError: Minari is not installed, the target exists or is not an id, or the spaces are not the archive's.
        CodecError: the archive is not whole.
    """
    minari = require_minari()
    contract, name = archive.contract, target.removeprefix(PREFIX)
    if contract.stack > 1:
        raise ConfigError("the archive holds stacks of frames, which Minari has no form for", key="PATH")
    if (contract.obs, contract.action) != (ObsSpec.from_space(observation_space), action_spec(action_space)):
        raise ConfigError(f"the archive does not hold observations {observation_space}, actions {action_space}")
    archive.verify()
    try:
        minari.dataset.minari_dataset.parse_dataset_id(name)
        path = Path(minari.storage.datasets_root_dir.get_dataset_path(name))
    except ValueError as error:
        raise ConfigError(f"{target} is not an id of Minari: {error}", key="PATH") from error
    if path.exists():
        raise ConfigError(f"{path} exists already; name a new dataset", key="PATH")
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        storage = minari.dataset.minari_storage.MinariStorage.new(
            partial / "data", observation_space, action_space, jpeg_encoding=False
        )
        storage.update_metadata({"dataset_id": name, "minari_version": minari.__version__})
        steps = episodes = cut = 0
        for parts in _episodes(archive):
            buffer, is_cut = _buffer(minari, contract.obs, parts)
            storage.update_episodes([buffer])
            steps, episodes, cut = steps + len(buffer.rewards), episodes + 1, cut + is_cut
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Exported(path, episodes, steps, cut)


def _episodes(archive: ReplayArchive) -> Iterator[list[_Part]]:
    """Put the own steps of chunks together, by sender and environment, to episodes; last, those without an end."""
    open_ones: dict[tuple[int, int], tuple[list[_Part], int]] = {}
    for chunk in archive.chunks():
        for slot, first, part in _parts(chunk):
            lane = (chunk.sender, slot)
            parts, following = open_ones.pop(lane, ([], first))
            if following != first and parts:  # the rest was not recorded, or evicted
                yield parts
                parts = []
            parts = [*parts, part]
            if part.columns["flags"][-1]:
                yield parts
            else:
                open_ones[lane] = parts, first + len(part.columns["reward"])
    for parts, _ in open_ones.values():
        yield parts


def _parts(chunk: ArchivedChunk) -> Iterator[tuple[int, int, _Part]]:
    """Yield the own steps of each segment, with its environment and the number of the first step in its episode."""
    row = step = 0
    for rows, own, slot, first, _ in chunk.segments.tolist():
        steps = rows - 1
        if own:
            leaves = [leaf[row : row + own + 1] for leaf in chunk.leaves]
            yield slot, first, _Part(leaves, {name: array[step : step + own] for name, array in chunk.columns.items()})
        row, step = row + rows, step + steps


def _buffer(minari: Any, obs: ObsSpec, parts: list[_Part]) -> tuple[Any, bool]:
    """Make Minari's form of an episode, and tell whether the archive lacks its end."""
    pairs = zip(*(part.leaves for part in parts), strict=True)
    leaves = [np.concatenate([*(leaf[:-1] for leaf in pieces), pieces[-1][-1:]]) for pieces in pairs]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in ("action", "reward", "flags")}
    is_cut = not columns["flags"][-1]
    if is_cut:
        columns["flags"][-1] = _TRUNCATED
    buffer = minari.data_collector.episode_buffer.EpisodeBuffer(
        observations=obs.unflatten(leaves),
        actions=columns["action"],
        rewards=columns["reward"],
        terminations=(columns["flags"] & _TERMINATED) > 0,
        truncations=(columns["flags"] & _TRUNCATED) > 0,
    )
    return buffer, is_cut
