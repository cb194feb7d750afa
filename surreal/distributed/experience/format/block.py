"""The block of a chunk: observation rows, leaf after leaf, as they are or each leaf compressed; and its size in Redis.

Called by `codec`. What a compressed leaf declares about itself is not believed: it is decompressed into an array whose
size follows from the chunk's row count, which was checked against a limit, and must fill it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec, ObsSpec

#: What blocks may be compressed with; both are names of pyarrow's codecs.
COMPRESSIONS = ("lz4", "zstd")


def write_block(leaves: Sequence[NDArray[Any]], compression: str | None) -> tuple[memoryview, ...]:
    """Give the block in pieces, one a leaf; without compression nothing is copied.

    Args:
        leaves: observation rows [n_rows, *shape] for each leaf.
        compression: None, or one of `COMPRESSIONS`.
    """
    pieces = [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data for leaf in leaves]
    if compression is not None:
        codec = pa.Codec(compression)
        pieces = [memoryview(codec.compress(piece)) if piece.nbytes else piece for piece in pieces]
    return tuple(pieces)


def read_block(obs: ObsSpec, block: bytes | memoryview, num_rows: int) -> list[NDArray[Any]]:
    """Views on an uncompressed block of the right length, one array [num_rows, *shape] a leaf."""
    leaves, offset = [], 0
    for leaf in obs.leaves:
        leaves.append(_rows(leaf, block, offset, num_rows))
        offset += num_rows * leaf.nbytes
    return leaves


def read_compressed_block(
    obs: ObsSpec, block: bytes | memoryview, num_rows: int, compression: str, sizes: Sequence[int]
) -> list[NDArray[Any]]:
    """Decompress a block; the caller has checked that `num_rows` rows may be allocated.

    Args:
        obs: what a row is.
        block: compressed leaves, one behind the other.
        num_rows: rows of each leaf.
        compression: one of `COMPRESSIONS`.
        sizes: compressed bytes of each leaf.

    Raises:
        CodecError: a leaf does not decompress to exactly that many rows.
    """
    if sum(sizes) != len(block):
        raise CodecError(f"the block has {len(block)} bytes; its leaves have {sum(sizes)}")
    leaves, offset, view = [], 0, memoryview(block)
    for leaf, size in zip(obs.leaves, sizes, strict=True):
        raw = np.empty(num_rows * leaf.nbytes, np.uint8)
        if size or raw.nbytes:
            _decompress(view[offset : offset + size], compression, raw, leaf.name)
        leaves.append(_rows(leaf, raw, 0, num_rows))
        offset += size
    return leaves


def stored_bytes(entry_bytes: int, content_bytes: int) -> int:
    """Bytes Redis needs for a chunk, allocator rounding and bookkeeping included (an estimate from above)."""
    return _allocated(content_bytes) + _allocated(entry_bytes) + 512


def _rows(leaf: ArraySpec, buffer: Any, offset: int, num_rows: int) -> NDArray[Any]:
    count = num_rows * math.prod(leaf.shape)
    array = np.frombuffer(buffer, leaf.dtype, count, offset) if count else np.empty(0, leaf.dtype)
    return array.reshape(num_rows, *leaf.shape)


def _decompress(piece: memoryview, compression: str, out: NDArray[np.uint8], name: str) -> None:
    # As a stream: pyarrow's whole-buffer form does not tell when lz4 data end too early.
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(piece)), compression)
        number = stream.readinto(out) if out.nbytes else 0
        is_exact = number == out.nbytes and not stream.read(1)
    except (pa.ArrowException, OSError) as error:
        raise CodecError(f"leaf {name!r} of the block is no {compression} data: {error}") from error
    if not is_exact:
        raise CodecError(f"leaf {name!r} of the block does not decompress to {out.nbytes} bytes")


def _allocated(size: int) -> int:
    """Size class jemalloc gives an allocation: four classes for each doubling (and a string's header of 16 bytes)."""
    size = max(size + 16, 16)
    spacing = max(16, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // spacing) * spacing
