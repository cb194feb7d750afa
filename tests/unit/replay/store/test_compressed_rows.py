"""Compressed rows are those that were put in, in a fraction of the memory, and leave nothing behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.experience.codec import Contract
from surreal.replay.store.rows import CompressedRows, MirroredRows

ACTION = ArraySpec("action", (), np.dtype(np.int64))


def make_chunk(rng: np.random.Generator, rows: int) -> Any:
    """An image with few colours, a long vector of noise, and a short one."""
    image = (rng.random((rows, 32, 32)) < 0.02).astype(np.uint8)
    noise = rng.standard_normal((rows, 80)).astype(np.float32)
    short = rng.integers(-9, 9, (rows, 2))
    return SimpleNamespace(leaves=[image[:, :, :], noise, short], num_rows=rows)


def test_rows_are_those_of_the_mirror_while_chunks_come_and_go() -> None:
    rng = np.random.default_rng(0)
    obs = {"image": np.zeros((32, 32), np.uint8), "noise": np.zeros(80, np.float32), "short": np.zeros(2, np.int64)}
    contract = Contract(ObsSpec.from_obs(obs), ACTION)
    compressed, mirrored = CompressedRows(contract, 100), MirroredRows(contract, 100)
    ends: list[int] = []
    for number in range(60):
        chunk = make_chunk(rng, int(rng.integers(1, 40)))
        assert compressed.insert(chunk) == mirrored.insert(chunk)
        ends.append(mirrored.head)
        if number > 8:  # the rings have grown until here
            for rows in (compressed, mirrored):
                rows.free_until(ends[number - 8])
        begin = ends[number - 8] if number > 8 else 0
        for shape in [(5, 3), 7]:
            wanted = rng.integers(begin, mirrored.head, shape)
            for a, b in zip(compressed.collect(wanted), mirrored.collect(wanted), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                np.testing.assert_array_equal(a, b)
    assert compressed.head == mirrored.head
    packed = compressed.nbytes - compressed.ring.nbytes
    assert 0 < packed < 0.6 * mirrored.nbytes
    compressed.free_until(compressed.head)
    assert compressed.nbytes == compressed.ring.nbytes
    assert not any(row is not None for row in compressed.ring.columns["0"])


def test_sparse_images_take_a_fraction() -> None:
    contract = Contract(ObsSpec.from_obs(np.zeros((84, 84), np.uint8)), ACTION)
    rows = CompressedRows(contract, 500)
    image = np.zeros((500, 84, 84), np.uint8)
    image[:, 40, 40] = np.arange(500) % 256
    rows.insert(SimpleNamespace(leaves=[image], num_rows=500))  # type: ignore[arg-type]
    assert rows.nbytes < 0.05 * image.nbytes


def test_a_chunk_without_observations_is_refused() -> None:
    contract = Contract(ObsSpec.from_obs(np.zeros((84, 84), np.uint8)), ACTION)
    with pytest.raises(ValueError, match="without its observations"):
        CompressedRows(contract, 10).insert(SimpleNamespace(leaves=[], num_rows=3))  # type: ignore[arg-type]
