"""The bytes of a chunk: how experience looks on the wire, and what a reader checks before it believes them.

A chunk is made of *segments*, runs of consecutive steps of one environment. It has three parts:

* `head`: magic, format version, counts, lengths, the id of the stream's contract, and for each segment five int32:
  observation rows, own steps, env slot, number of its first step in the episode, history rows;
* `table`: one Arrow IPC record batch message, one row a step (`Contract.table_columns`), segment after segment;
* `block`: the observation rows: leaf after leaf, each leaf's rows contiguous, so that a row has a known offset; or each
  leaf compressed by itself, if the contract says so, and then the head ends with the compressed sizes, uint32 each.

The head is in the stream. Block and table are one string, the *content*, with the block first and padding to 8 bytes
between them.

A segment of h + k + 1 observation rows has h history rows and k steps: step j goes from its row h + j to the next. The
first `own` of them belong to the chunk; the others are lookahead, which the next chunk owns.

Where observations are stacks of frames (`Contract.stack`), a row is one frame, stored once. The stack at a row is made
of it and the rows before it in its segment; history rows are there for the first steps' stacks. A segment with fewer
rows than that begins where its episode began, and its first frame is repeated, as stacking does after a reset.

Nothing is pickled. Both sides derive the schema from the stream's `Contract`, which is compared when a stream is
opened. Bytes come from a network: lengths, versions, counts and ranges are checked before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import BadValueError, CodecError
from surreal.base.values import MAX_VERSION, are_within, describe_unsound
from surreal.distributed.experience.format.arrow_table import read_table, write_table
from surreal.distributed.experience.format.block import read_block, read_compressed_block, stored_bytes, write_block
from surreal.distributed.experience.format.chunk import Chunk
from surreal.distributed.experience.format.data_contract import (
    EXTRA_PREFIX,
    FORMAT_VERSION,
    MAX_STACK,
    PRIORITY_COLUMN,
    Contract,
)

__all__ = [
    "FORMAT_VERSION",
    "MAX_CHUNK_BYTES",
    "MAX_ROWS",
    "MAX_SEGMENTS",
    "MAX_STACK",
    "Chunk",
    "Contract",
    "EncodedChunk",
    "contract_id",
    "decode",
    "encode",
    "segments_of",
    "split",
    "stored_bytes",
    "table_bytes",
]

MAX_ROWS = 1 << 22
MAX_SEGMENTS = (1 << 16) - 1
MAX_CHUNK_BYTES = 256 << 20

_MAGIC = b"SRLC"
_HEAD = struct.Struct("<4sHHIIIIQQ")  # magic, version, segments, rows, steps, own, table, block, contract
_SEGMENT_DTYPE = np.dtype("<i4")
_SEGMENT_FIELDS = 5
_SIZE_DTYPE = np.dtype("<u4")
_FLAGS_MAX = 3


class EncodedChunk(NamedTuple):
    """A chunk ready to be stored. Its content stays in pieces: no observation is copied before the socket."""

    head: bytes
    table: bytes
    leaves: tuple[memoryview, ...]
    own_steps: int

    @property
    def block(self) -> bytes:
        """The block as one string (a copy)."""
        return b"".join(self.leaves)

    @property
    def block_bytes(self) -> int:
        """Length of the block."""
        return sum(leaf.nbytes for leaf in self.leaves)

    @property
    def pieces(self) -> list[memoryview]:
        """The content, in pieces."""
        return [*self.leaves, memoryview(bytes(_padding(self.block_bytes)) + self.table)]

    @property
    def content_bytes(self) -> int:
        """Length of the content."""
        return _content_bytes(self.block_bytes, len(self.table))

    @property
    def stored_bytes(self) -> int:
        """Bytes Redis needs for it (`stored_bytes`)."""
        return stored_bytes(len(self.head), self.content_bytes)


def encode(
    contract: Contract, segments: NDArray[np.int32], columns: Mapping[str, NDArray[Any]], leaves: Sequence[NDArray[Any]]
) -> EncodedChunk:
    """Serialize one chunk.

    Args:
        contract: the stream's contract.
        segments: [S, 5] rows, own steps, env slot, first step number, history rows of each segment.
        columns: one array [n_steps, ...] for each of `contract.table_columns`, of the right dtype.
        leaves: observation rows [n_rows, *shape] for each leaf, of the right dtype; they must not change afterwards.

    Raises:
        BadValueError: a number is not finite, or too large.
    """
    if problem := _describe_unsound(contract, columns, leaves):
        raise BadValueError(f"experience that cannot be learned from is not sent: {problem}")
    table = write_table(contract.table_columns, contract.table_schema, columns)
    pieces = write_block(leaves, contract.compression)
    block_bytes = sum(piece.nbytes for piece in pieces)
    num_steps, own_steps = len(columns["reward"]), int(segments[:, 1].sum())
    counts = (len(segments), len(leaves[0]), num_steps, own_steps, len(table), block_bytes)
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION, *counts, contract.id)
    head += segments.astype(_SEGMENT_DTYPE).tobytes()
    if contract.compression is not None:
        head += np.array([piece.nbytes for piece in pieces], _SIZE_DTYPE).tobytes()
    return EncodedChunk(head, table, pieces, own_steps)


def contract_id(head: bytes) -> int:
    """The contract a chunk was made for, from its head.

    Raises:
        CodecError: the head is cut off, or of another program or version.
    """
    return int(_read_head(head)[8])


def table_bytes(head: bytes) -> int:
    """Length of the table, which is the end of the content.

    Raises:
        CodecError: as `contract_id`.
    """
    return int(_read_head(head)[6])


def segments_of(head: bytes) -> list[tuple[int, ...]]:
    """The segments that a head tells of, five numbers each; without the contract, they are not checked any further.

    Raises:
        CodecError: as `contract_id`, or the head ends among them.
    """
    number = int(_read_head(head)[2])
    size = number * _SEGMENT_FIELDS * _SEGMENT_DTYPE.itemsize
    if len(head) < _HEAD.size + size:
        raise CodecError(f"a head of {len(head)} bytes cannot describe {number} segments")
    return list(struct.iter_unpack(f"<{_SEGMENT_FIELDS}i", head[_HEAD.size : _HEAD.size + size]))


def split(head: bytes, content: bytes) -> tuple[memoryview, memoryview]:
    """The table and the block that a content is made of, uncopied.

    Raises:
        CodecError: the lengths are not as the head says.
    """
    *_, in_table, in_block, _ = _read_head(head)
    if len(content) != _content_bytes(in_block, in_table):
        raise CodecError(f"the content has {len(content)} bytes; its head says {in_block} and {in_table}")
    view = memoryview(content)
    return view[len(content) - in_table :], view[:in_block]


def decode(contract: Contract, head: bytes, table: bytes | memoryview, block: bytes | memoryview | None) -> Chunk:
    """Read one chunk back; arrays are views on `table` and `block`.

    Args:
        contract: the stream's contract.
        head: of the chunk.
        table: of the chunk.
        block: its observations; None leaves them where they are, and the chunk has no leaves.

    Raises:
        CodecError: anything about the bytes is not as a sender of this contract would have written it.
    """
    _, _, _, num_rows, num_steps, own_steps, in_table, block_bytes, stream_id = _read_head(head)
    if stream_id != contract.id:
        raise CodecError(f"the chunk was made for contract {stream_id:016x}, not {contract.id:016x}")
    segments, sizes = _read_segments(contract, head, num_rows, num_steps, own_steps)
    if segments[:, 4].max() >= contract.stack:
        raise CodecError(f"a segment has {segments[:, 4].max()} history rows; a stack of {contract.stack} needs fewer")
    expected = num_rows * contract.obs.row_bytes
    if expected > MAX_CHUNK_BYTES and contract.compression is not None:
        raise CodecError(f"{num_rows} observation rows take {expected} bytes; a chunk has at most {MAX_CHUNK_BYTES}")
    if contract.compression is None and block_bytes != expected:
        raise CodecError(f"the block has {block_bytes} bytes; {num_rows} observation rows take {expected}")
    if block is not None and len(block) != block_bytes:
        raise CodecError(f"the block has {len(block)} bytes; its head says {block_bytes}")
    if len(table) != in_table or in_table > MAX_CHUNK_BYTES:
        raise CodecError(f"the table has {len(table)} bytes; its head says {in_table}")
    columns = read_table(contract.table_columns, contract.table_schema, table, num_steps)
    if columns["flags"].max() > _FLAGS_MAX:
        raise CodecError(f"a step has the flags {columns['flags'].max()}; at most {_FLAGS_MAX} is known")
    if not are_within(columns["version"], -1, MAX_VERSION):
        raise CodecError(f"a step has a parameter version that is not -1 .. {MAX_VERSION}")
    if block is None:
        leaves = []
    elif contract.compression is None:
        leaves = read_block(contract.obs, block, num_rows)
    else:
        leaves = read_compressed_block(contract.obs, block, num_rows, contract.compression, sizes)
    # Foreign senders, and files that people made: nothing behind here looks at the numbers again.
    if problem := _describe_unsound(contract, columns, leaves):
        raise CodecError(f"a chunk holds an impossible number: {problem}")
    extras = {extra.name: columns.pop(EXTRA_PREFIX + extra.name) for extra in contract.extras}
    return Chunk(
        segments,
        columns,
        extras,
        leaves,
        own_steps,
        stored_bytes=stored_bytes(len(head), _content_bytes(block_bytes, in_table)),
        contract=contract,
    )


def _describe_unsound(contract: Contract, columns: Mapping[str, NDArray[Any]], leaves: Sequence[NDArray[Any]]) -> str:
    named = {
        f"observation {leaf.name}".rstrip(): array for leaf, array in zip(contract.obs.leaves, leaves, strict=False)
    }
    judged = {name: column for name, column in columns.items() if name != EXTRA_PREFIX + PRIORITY_COLUMN}
    return describe_unsound({**judged, **named})


def _padding(block_bytes: int) -> int:
    return -block_bytes % 8


def _content_bytes(block_bytes: int, in_table: int) -> int:
    return block_bytes + _padding(block_bytes) + in_table


def _read_head(head: bytes) -> tuple[Any, ...]:
    if len(head) < _HEAD.size:
        raise CodecError(f"a chunk's head has at least {_HEAD.size} bytes, got {len(head)}")
    fields = _HEAD.unpack_from(head)
    if fields[0] != _MAGIC:
        raise CodecError(f"a chunk's head starts with {_MAGIC!r}, got {fields[0]!r}")
    if fields[1] != FORMAT_VERSION:
        raise CodecError(f"chunk format {fields[1]} is not known; this program reads {FORMAT_VERSION}")
    return fields


def _read_segments(
    contract: Contract, head: bytes, num_rows: int, num_steps: int, own_steps: int
) -> tuple[NDArray[np.int32], list[int]]:
    """The segments, and the compressed sizes of the leaves behind them (none, if the contract has no compression)."""
    number = _HEAD.unpack_from(head)[2]
    end = _HEAD.size + _SEGMENT_FIELDS * _SEGMENT_DTYPE.itemsize * number
    num_sizes = 0 if contract.compression is None else len(contract.obs.leaves)
    if len(head) != end + num_sizes * _SIZE_DTYPE.itemsize:
        raise CodecError(f"a head of {len(head)} bytes cannot describe {number} segments")
    if not 0 < num_rows <= MAX_ROWS or number == 0:
        raise CodecError(f"a chunk of {num_rows} observation rows in {number} segments is not possible")
    segments = np.frombuffer(head, _SEGMENT_DTYPE, _SEGMENT_FIELDS * number, _HEAD.size).reshape(
        number, _SEGMENT_FIELDS
    )
    rows, own = segments[:, 0].astype(np.int64), segments[:, 1].astype(np.int64)
    steps = rows - 1 - segments[:, 4]
    if segments.min() < 0 or steps.min() < 1 or (own > steps).any():
        raise CodecError("a segment must have a step, no more own steps than steps, and no negative number")
    if rows.sum() != num_rows or steps.sum() != num_steps or int(own.sum()) != own_steps:
        raise CodecError(f"the segments do not add up to {num_rows} rows, {num_steps} steps, {own_steps} own steps")
    return segments, np.frombuffer(head, _SIZE_DTYPE, num_sizes, end).tolist()
