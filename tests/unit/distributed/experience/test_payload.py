"""Blocks compressed leaf by leaf: what comes back, and what is refused before it costs memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.experience.codec import Contract, EncodedChunk, decode, encode
from surreal.distributed.experience.payload import COMPRESSIONS, read_block, write_block
from tests.examples import examples

OBS = ObsSpec.from_obs(
    {"image": np.zeros((4, 4), np.uint8), "none": np.zeros((0, 2), np.float32), "pose": np.float32(0)}
)


def leaves(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        np.broadcast_to(rng.integers(0, 255, (rows, 1, 1)), (rows, 4, 4)).astype(np.uint8),
        np.zeros((rows, 0, 2), np.float32),
        rng.random(rows).astype(np.float32),
    ]


def make_chunk(compression: str, steps: int = 50) -> tuple[Contract, EncodedChunk]:
    contract = Contract(OBS, ArraySpec("action", (), np.dtype(np.int64)), compression=compression)
    columns = {
        "action": np.zeros(steps, np.int64),
        "reward": np.zeros(steps, np.float32),
        "flags": np.zeros(steps, np.uint8),
        "version": np.zeros(steps, np.int32),
    }
    return contract, encode(contract, np.array([[steps + 1, steps, 0, 0, 0]], np.int32), columns, leaves(steps + 1))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@examples(20)
@given(steps=st.integers(1, 60))
def test_a_compressed_chunk_survives_the_wire(compression: str, steps: int) -> None:
    contract, encoded = make_chunk(compression, steps)
    reader = Contract.from_bytes(contract.as_bytes)
    assert (reader, reader.id) == (contract, contract.id)
    chunk = decode(reader, encoded.head, encoded.table, encoded.block)
    for got, expected in zip(chunk.leaves, leaves(steps + 1), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    assert chunk.stored_bytes == encoded.stored_bytes


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_accounted_bytes_are_the_compressed_ones(compression: str) -> None:
    _, encoded = make_chunk(compression)
    assert 0 < len(encoded.block) < 51 * OBS.row_bytes


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_block_that_was_cut_or_changed_is_refused(compression: str) -> None:
    contract, encoded = make_chunk(compression)
    block = encoded.block
    wrong = [block[:-1], block + b"\0", b"", b"x" * len(block), block[1:] + block[:1]]
    for bad in wrong:
        with pytest.raises(CodecError):
            decode(contract, encoded.head, encoded.table, bad)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("rows", [1, 49, 52, 1000])
def test_a_leaf_of_another_number_of_rows_is_refused(compression: str, rows: int) -> None:
    pieces = write_block(leaves(51), compression)
    sizes = [piece.nbytes for piece in pieces]
    with pytest.raises(CodecError):
        read_block(OBS, b"".join(pieces), rows, compression, sizes)


def test_rows_that_would_take_too_much_are_refused_before_they_are_allocated() -> None:
    contract, encoded = make_chunk("zstd")
    huge = Contract(ObsSpec.from_obs(np.zeros((4000, 4000), np.uint8)), contract.action, compression="zstd")
    # The same chunk, said to be of rows of 16 MB each: 816 MB.
    head = encoded.head[:-12] + encoded.head[-4:]
    head = head[:32] + huge.id.to_bytes(8, "little") + head[40:]
    tracemalloc.start()
    with pytest.raises(CodecError, match="816000000 bytes; a chunk has at most"):
        decode(huge, head, encoded.table, encoded.block)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_an_unknown_compression_is_refused() -> None:
    contract, _ = make_chunk("lz4")
    with pytest.raises(CodecError, match="compression is 'lzo'"):
        Contract.from_bytes(contract.as_bytes.replace(b'"lz4"', b'"lzo"'))


def test_without_a_block_the_rest_of_a_chunk_is_read() -> None:
    contract = Contract(OBS, ArraySpec("action", (), np.dtype(np.int64)))
    _, with_block = make_chunk("lz4")
    columns = {
        "action": np.arange(50),
        "reward": np.zeros(50, np.float32),
        "flags": np.zeros(50, np.uint8),
        "version": np.zeros(50, np.int32),
    }
    encoded = encode(contract, np.array([[51, 50, 0, 0, 0]], np.int32), columns, leaves(51))
    chunk = decode(contract, encoded.head, encoded.table, None)
    assert (chunk.leaves, chunk.num_rows, chunk.own_steps) == ([], 51, 50)
    assert chunk.stored_bytes == encoded.stored_bytes > with_block.stored_bytes
