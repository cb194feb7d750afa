"""The bytes of a chunk, and the checks of a reader before it trusts them.

A chunk is made of *segments*, runs of consecutive steps of one environment. It has three parts:

* `head`: magic, format version, counts, lengths, the id of the stream's contract, and five int32 for each segment:
  observation rows, own steps, env slot, number of its first step in the episode, history rows;
* `table`: one Arrow IPC record batch message, one row per step (`Contract.table_columns`), segment after segment.
  With a `Contract.state_interval` above 1, recurrent states are lists, which are empty in the steps without one;
* `block`: the observation rows. Each leaf's rows are contiguous, so a row has a known offset. If the contract has
  compression, each leaf is compressed separately, and the head ends with the compressed sizes, uint32 each.

The head is in the stream. Block and table are one string, the *content*: the block, padding to 8 bytes, the table.

A segment of h + k + 1 observation rows has h history rows and k steps: step j goes from its row h + j to the next. The
first `own` steps belong to the chunk; the others are lookahead, which the next chunk owns.

If observations are stacks of frames (`Contract.stack`), a row is one frame, stored once. The stack at a row consists of
it and the rows before it in its segment; history rows complete the stacks of the first steps. A segment with fewer rows
begins at the start of its episode, and its first frame is repeated, as stacking does after a reset.

Nothing is pickled. Both sides derive the schema from the stream's `Contract`. Bytes come from a network: lengths,
versions, counts and ranges are checked before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import BadValueError, CodecError
from surreal.base.values import MAX_VERSION, are_within, describe_unsound
from surreal.distributed.experience.data_contract import EXTRA_PREFIX, FORMAT_VERSION, PRIORITY_COLUMN
from surreal.distributed.experience.data_contract import Contract as Contract  # part of this interface
from surreal.distributed.experience.payload import read_block, read_table, stored_bytes, write_block, write_table

T = TypeVar("T", bound=np.generic)

MAX_ROWS, MAX_SEGMENTS, MAX_CHUNK_BYTES = 1 << 22, (1 << 16) - 1, 256 << 20
_MAGIC = b"SRLC"
_HEAD = struct.Struct("<4sHHIIIIQQ")  # magic, version, segments, rows, steps, own, table, block, contract
_SEGMENT, _SEGMENT_DTYPE, _SIZE_DTYPE = struct.Struct("<5i"), np.dtype("<i4"), np.dtype("<u4")
_FLAGS_MAX = 3


class EncodedChunk(NamedTuple):
    """A chunk ready to be stored. Its content stays in pieces: no observation is copied before the socket."""

    head: bytes
    table: bytes
    leaves: tuple[memoryview, ...]
    own_steps: int
    content_bytes: int
    stored_bytes: int  #: bytes that Redis needs for the chunk (`payload.stored_bytes`)

    @property
    def block(self) -> bytes:
        """The block as one string (a copy)."""
        return b"".join(self.leaves)

    @property
    def pieces(self) -> list[memoryview]:
        block_bytes = sum(leaf.nbytes for leaf in self.leaves)
        return [*self.leaves, memoryview(bytes(-block_bytes % 8) + self.table)]


@dataclass
class Chunk:
    """A decoded chunk: views on the received bytes, nothing copied (except for compressed observations)."""

    segments: NDArray[np.int32]  #: [S, 5] int32, see the module
    columns: dict[str, NDArray[Any]]  #: one array [n_steps, ...] for each column of the table except the extras
    extras: dict[str, NDArray[Any]]  #: the agent's columns, [n_steps, ...]
    #: one array [n_rows, *leaf_shape] for each leaf of the observation; none if the block was left in Redis
    leaves: list[NDArray[Any]]
    own_steps: int  #: number of steps that belong to this chunk (the others are lookahead)
    entry_id: bytes = b""
    chunk_id: str = ""
    shard: int = 0  #: number of its shard
    epoch: str = ""
    stored_bytes: int = 0
    contract: Contract | None = field(default=None, repr=False)

    @cached_property
    def num_rows(self) -> int:
        """Number of observation rows, also if they were left in Redis."""
        return int(self.segments[:, 0].sum())

    @cached_property
    def obs_row(self) -> NDArray[np.int64]:
        """[n_steps] observation row of each step; the next row is the next observation."""
        rows_before = np.cumsum(self.segments[:, 4] + 1, dtype=np.int64) - 1
        return np.arange(len(self.columns["reward"])) + self._per_step(rows_before)

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """[n_steps] number of rows of the same segment before each step's row."""
        return self.within + self._per_step(self.segments[:, 4])

    @cached_property
    def own(self) -> NDArray[np.int64]:
        """[own_steps] positions of the steps that belong to this chunk."""
        if self.own_steps == len(self.columns["reward"]):
            return np.arange(self.own_steps)
        return np.flatnonzero(self.within < self._per_step(self.segments[:, 1]))

    @cached_property
    def within(self) -> NDArray[np.int64]:
        """[n_steps] number of each step in its segment."""
        return np.arange(len(self.columns["reward"])) - self._per_step(np.cumsum(self._steps) - self._steps)

    @cached_property
    def env_slot(self) -> NDArray[np.int32]:
        return self._per_step(self.segments[:, 2])

    @cached_property
    def step(self) -> NDArray[np.int64]:
        return self.within + self._per_step(self.segments[:, 3])

    @cached_property
    def terminated(self) -> NDArray[np.bool_]:
        """[n_steps] whether the step ended its episode in a terminal state."""
        return (self.columns["flags"] & 1).view(np.bool_)

    @cached_property
    def truncated(self) -> NDArray[np.bool_]:
        """[n_steps] whether the episode was cut off after the step."""
        return (self.columns["flags"] >> 1).view(np.bool_)

    @cached_property
    def _steps(self) -> NDArray[np.int64]:
        return self.segments[:, 0].astype(np.int64) - 1 - self.segments[:, 4]

    def _per_step(self, values: NDArray[T]) -> NDArray[T]:
        return np.repeat(values, self._steps)


def encode(
    contract: Contract, segments: NDArray[np.int32], columns: Mapping[str, NDArray[Any]], leaves: Sequence[NDArray[Any]]
) -> EncodedChunk:
    """Serialize one chunk; raises `BadValueError` if a number is not finite, or too large.

    Args:
        contract: the stream's contract.
        segments: [S, 5] rows, own steps, env slot, first step number, history rows of each segment.
        columns: one array [n_steps, ...] for each of `contract.table_columns`, of the right dtype.
        leaves: observation rows [n_rows, *shape] for each leaf, of the right dtype; they must not change afterwards.
    """
    if problem := _describe_unsound(contract, columns, leaves):
        raise BadValueError(f"experience that cannot be learned from is not sent: {problem}")
    kept = contract.with_state(segments) if contract.sparse else None
    table = write_table(contract.table_columns, contract.table_schema, columns, kept)
    pieces = write_block(leaves, contract.compression)
    block_bytes = sum(piece.nbytes for piece in pieces)
    num_steps, own_steps = len(columns["reward"]), int(segments[:, 1].sum())
    counts = (len(segments), len(leaves[0]), num_steps, own_steps, len(table), block_bytes)
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION, *counts, contract.id)
    head += segments.astype(_SEGMENT_DTYPE).tobytes()
    if contract.compression is not None:
        head += np.array([piece.nbytes for piece in pieces], _SIZE_DTYPE).tobytes()
    size = _content_bytes(block_bytes, len(table))
    return EncodedChunk(head, table, pieces, own_steps, size, stored_bytes(len(head), size))


class Head(NamedTuple):
    """The numbers at the beginning of a chunk's head."""

    magic: bytes
    version: int
    segments: int
    rows: int  #: of observations
    steps: int
    own_steps: int
    table_bytes: int
    block_bytes: int
    contract_id: int


def read_head(head: bytes) -> Head:
    """Read the numbers that begin a head; raises `CodecError` if it is cut off, or of another version."""
    if len(head) < _HEAD.size:
        raise CodecError(f"a chunk's head has at least {_HEAD.size} bytes, got {len(head)}")
    found = Head._make(_HEAD.unpack_from(head))
    if found.magic != _MAGIC:
        raise CodecError(f"a chunk's head starts with {_MAGIC!r}, got {found.magic!r}")
    if found.version != FORMAT_VERSION:
        raise CodecError(f"chunk format {found.version} is not known; this program reads {FORMAT_VERSION}")
    return found


def segments_of(head: bytes) -> list[tuple[int, ...]]:
    """Return the segments in a head, five numbers each; raises `CodecError` as `read_head`, or if it is too short."""
    number = read_head(head).segments
    if len(head) < _HEAD.size + number * _SEGMENT.size:
        raise CodecError(f"a head of {len(head)} bytes cannot describe {number} segments")
    return list(_SEGMENT.iter_unpack(head[_HEAD.size : _HEAD.size + number * _SEGMENT.size]))


def split(head: bytes, content: bytes) -> tuple[memoryview, memoryview]:
    """Split a content into the table and the block without copying; raises `CodecError` if lengths differ."""
    found = read_head(head)
    if len(content) != _content_bytes(found.block_bytes, found.table_bytes):
        declared = f"{found.block_bytes} and {found.table_bytes}"
        raise CodecError(f"the content has {len(content)} bytes; its head says {declared}")
    view = memoryview(content)
    return view[len(content) - found.table_bytes :], view[: found.block_bytes]


def decode(contract: Contract, head: bytes, table: bytes | memoryview, block: bytes | memoryview | None) -> Chunk:
    """Decode a chunk, views on `table` and `block` (None: no leaves); raises `CodecError` if it is corrupted."""
    found = read_head(head)
    if found.contract_id != contract.id:
        raise CodecError(f"the chunk was made for contract {found.contract_id:016x}, not {contract.id:016x}")
    segments, sizes = _read_segments(contract, head, found)
    if segments[:, 4].max() >= contract.stack:
        raise CodecError(f"a segment has {segments[:, 4].max()} history rows; a stack of {contract.stack} needs fewer")
    expected = found.rows * contract.obs.row_bytes
    if expected > MAX_CHUNK_BYTES and contract.compression is not None:
        raise CodecError(f"{found.rows} observation rows take {expected} bytes; a chunk has at most {MAX_CHUNK_BYTES}")
    if contract.compression is None and found.block_bytes != expected:
        raise CodecError(f"the block has {found.block_bytes} bytes; {found.rows} observation rows take {expected}")
    if block is not None and len(block) != found.block_bytes:
        raise CodecError(f"the block has {len(block)} bytes; its head says {found.block_bytes}")
    if len(table) != found.table_bytes or found.table_bytes > MAX_CHUNK_BYTES:
        raise CodecError(f"the table has {len(table)} bytes; its head says {found.table_bytes}")
    kept = contract.with_state(segments) if contract.sparse else None
    columns = read_table(contract.table_columns, contract.table_schema, table, found.steps, kept)
    if columns["flags"].max() > _FLAGS_MAX:
        raise CodecError(f"a step has the flags {columns['flags'].max()}; at most {_FLAGS_MAX} is known")
    if not are_within(columns["version"], -1, MAX_VERSION):
        raise CodecError(f"a step has a parameter version that is not -1 .. {MAX_VERSION}")
    leaves = [] if block is None else read_block(contract.obs, block, found.rows, contract.compression, sizes)
    # Foreign senders and files may hold any number, and no later code checks them again.
    if problem := _describe_unsound(contract, columns, leaves):
        raise CodecError(f"a chunk holds an impossible number: {problem}")
    extras = {extra.name: columns.pop(EXTRA_PREFIX + extra.name) for extra in contract.extras}
    size = stored_bytes(len(head), _content_bytes(found.block_bytes, found.table_bytes))
    return Chunk(segments, columns, extras, leaves, found.own_steps, stored_bytes=size, contract=contract)


def _describe_unsound(contract: Contract, columns: Mapping[str, NDArray[Any]], leaves: Sequence[NDArray[Any]]) -> str:
    judged = {name: column for name, column in columns.items() if name != EXTRA_PREFIX + PRIORITY_COLUMN}
    named = zip(contract.obs.leaves, leaves, strict=False)
    return describe_unsound(judged | {f"observation {leaf.name}".rstrip(): array for leaf, array in named})


def _content_bytes(block_bytes: int, in_table: int) -> int:
    return block_bytes + -block_bytes % 8 + in_table


def _read_segments(contract: Contract, head: bytes, found: Head) -> tuple[NDArray[np.int32], list[int]]:
    """Return the segments, and the compressed sizes of the leaves after them ([] without compression)."""
    number = found.segments
    end = _HEAD.size + number * _SEGMENT.size
    num_sizes = 0 if contract.compression is None else len(contract.obs.leaves)
    if len(head) != end + num_sizes * _SIZE_DTYPE.itemsize:
        raise CodecError(f"a head of {len(head)} bytes cannot describe {number} segments")
    if not 0 < found.rows <= MAX_ROWS or number == 0:
        raise CodecError(f"a chunk of {found.rows} observation rows in {number} segments is not possible")
    segments = np.frombuffer(head[_HEAD.size : end], _SEGMENT_DTYPE).reshape(number, -1)
    rows, own = segments[:, 0].astype(np.int64), segments[:, 1].astype(np.int64)
    steps = rows - 1 - segments[:, 4]
    if segments.min() < 0 or steps.min() < 1 or (own > steps).any():
        raise CodecError("a segment must have a step, no more own steps than steps, and no negative number")
    if rows.sum() != found.rows or steps.sum() != found.steps or int(own.sum()) != found.own_steps:
        counts = f"{found.rows} rows, {found.steps} steps, {found.own_steps} own steps"
        raise CodecError(f"the segments do not add up to {counts}")
    return segments, np.frombuffer(head, _SIZE_DTYPE, num_sizes, end).tolist()
