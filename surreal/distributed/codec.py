"""The bytes of a chunk: how experience looks on the wire, and what a reader checks before it believes them.

A chunk has three parts:

* `head`, 40 bytes: magic, format version, counts, the length of the block and the id of the stream's contract;
* `table`, one Arrow IPC record batch message, one row a step (`table_schema` lists the columns);
* `block`, the observation rows: leaf after leaf, each leaf's rows contiguous, so that a row has a known offset.

Within a chunk, rows of one segment (consecutive steps of one environment) are consecutive in the block: the observation
after step j is row `obs_row[j] + 1`, and step j + 1 belongs to the same segment iff its `obs_row` is one larger.

Nothing is pickled. Both sides derive the schema from the stream's `Contract`, which is compared when a stream is opened.
Bytes come from a network: lengths, versions, counts and ranges are checked, and compressed Arrow buffers (whose size
would be the sender's word) are refused, before anything is allocated.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surreal.errors import CodecError
from surreal.specs import ArraySpec, ObsSpec

FORMAT_VERSION = 1
MAX_ROWS = 1 << 22
MAX_CHUNK_BYTES = 256 << 20

_MAGIC = b"SRLC"
_HEAD = struct.Struct("<4sHHIIIIQQ")
_EXTRA_PREFIX = "extra."


@dataclass(frozen=True)
class Contract:
    """What all senders and readers of one stream agree on.

    Args:
        obs: leaves of an observation.
        action: shape and dtype of an action.
        extras: columns the agent adds to each step.
        lookahead: how many steps a segment repeats from the next one, so that each of its own steps has its
            n-step return in the same chunk; n <= lookahead + 1.
    """

    obs: ObsSpec
    action: ArraySpec
    extras: tuple[ArraySpec, ...] = ()
    lookahead: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "obs": self.obs.to_json(),
            "action": self.action.to_json(),
            "extras": [extra.to_json() for extra in self.extras],
            "lookahead": self.lookahead,
        }

    @classmethod
    def from_bytes(cls, text: bytes) -> Contract:
        """Read a contract as it is stored in Redis.

        Raises:
            CodecError: it is not one, or of another format version.
        """
        try:
            data = json.loads(text)
            if data["format"] != FORMAT_VERSION:
                raise CodecError(f"the stream has chunk format {data['format']}; this program reads {FORMAT_VERSION}")
            extras = tuple(ArraySpec.from_json(extra) for extra in data["extras"])
            obs, action = ObsSpec.from_json(data["obs"]), ArraySpec.from_json(data["action"])
            return cls(obs, action, extras, int(data["lookahead"]))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise CodecError(f"the stream's contract cannot be read: {error}") from error

    @cached_property
    def as_bytes(self) -> bytes:
        """Canonical JSON, as it is stored in Redis."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def id(self) -> int:
        """64 bits of a hash of the contract, carried by every chunk."""
        return int.from_bytes(hashlib.sha256(self.as_bytes).digest()[:8], "little")

    @cached_property
    def table_columns(self) -> tuple[tuple[str, ArraySpec], ...]:
        """Columns of the table in order: name on the wire and what a row of it is."""
        fixed: list[tuple[str, tuple[int, ...], Any]] = [
            ("obs_row", (), np.int32),  # observation row in the block
            ("slot", (), np.int32),  # which environment of the sender
            ("step", (), np.int32),  # number of the step in its episode
            ("action", self.action.shape, self.action.dtype),
            ("reward", (), np.float32),
            ("terminated", (), np.uint8),
            ("truncated", (), np.uint8),
            ("own", (), np.uint8),  # 0 for the lookahead, which the next chunk owns
            ("version", (), np.int64),  # parameter version that acted, -1 if unknown
        ]
        columns = [(name, ArraySpec(name, shape, np.dtype(dtype))) for name, shape, dtype in fixed]
        columns += [(_EXTRA_PREFIX + extra.name, extra) for extra in self.extras]
        return tuple(columns)

    @cached_property
    def table_schema(self) -> pa.Schema:
        """The Arrow schema of the table."""
        return pa.schema([pa.field(name, _arrow_type(spec), nullable=False) for name, spec in self.table_columns])


class EncodedChunk(NamedTuple):
    """A chunk ready to be stored."""

    head: bytes
    table: bytes
    block: bytes
    own_steps: int

    @property
    def stored_bytes(self) -> int:
        """Bytes Redis needs for it (`stored_bytes`)."""
        return stored_bytes(self.head, self.table, self.block)


@dataclass
class Chunk:
    """A decoded chunk: views on the bytes that came, nothing copied.

    Attributes:
        columns: one array [n_steps, ...] for each column of the table but the extras.
        extras: the agent's columns, [n_steps, ...].
        leaves: one array [n_rows, *leaf_shape] for each leaf of the observation.
        own_steps: how many of the steps belong to this chunk (the others are lookahead).
    """

    columns: dict[str, NDArray[Any]]
    extras: dict[str, NDArray[Any]]
    leaves: list[NDArray[Any]]
    own_steps: int
    entry_id: bytes = b""
    chunk_id: str = ""
    epoch: str = ""
    stored_bytes: int = 0
    contract: Contract | None = field(default=None, repr=False)

    @property
    def num_rows(self) -> int:
        return len(self.leaves[0]) if self.leaves else 0


def encode(
    contract: Contract, columns: Mapping[str, NDArray[Any]], leaves: Sequence[NDArray[Any]], own_steps: int
) -> EncodedChunk:
    """Serialize one chunk.

    Args:
        contract: the stream's contract.
        columns: one array [n_steps, ...] for each of `contract.table_columns`, C-contiguous, of the right dtype.
        leaves: observation rows [n_rows, *shape] for each leaf.
        own_steps: the sum of the `own` column.
    """
    num_steps = len(columns["obs_row"])
    arrays = [_to_arrow(spec, columns[name]) for name, spec in contract.table_columns]
    table = pa.RecordBatch.from_arrays(arrays, schema=contract.table_schema).serialize().to_pybytes()
    block = b"".join([leaf.tobytes() for leaf in leaves]) if len(leaves) != 1 else leaves[0].tobytes()
    num_rows = len(leaves[0])
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION, 0, num_rows, num_steps, own_steps, len(table), len(block), contract.id)
    return EncodedChunk(head, table, block, own_steps)


def stored_bytes(head: bytes, table: bytes, block: bytes) -> int:
    """Bytes Redis needs for a chunk, allocator rounding and bookkeeping included (an estimate from above)."""
    return _allocated(len(block)) + _allocated(len(table) + len(head)) + 512


def contract_id(head: bytes) -> int:
    """The contract a chunk was made for, from its head.

    Raises:
        CodecError: the head is cut off, or of another program or version.
    """
    return int(_read_head(head)[8])


def decode(contract: Contract, head: bytes, table: bytes, block: bytes) -> Chunk:
    """Read one chunk back; arrays are views on `table` and `block`.

    Raises:
        CodecError: anything about the bytes is not as a sender of this contract would have written it.
    """
    _, _, _, num_rows, num_steps, own_steps, table_bytes, block_bytes, stream_id = _read_head(head)
    if stream_id != contract.id:
        raise CodecError(f"the chunk was made for contract {stream_id:016x}, not {contract.id:016x}")
    if not 0 < num_steps < num_rows <= MAX_ROWS or own_steps > num_steps:
        raise CodecError(f"a chunk of {num_rows} rows, {num_steps} steps, {own_steps} own steps is not possible")
    expected = num_rows * contract.obs.row_bytes
    if block_bytes != expected or len(block) != expected:
        raise CodecError(f"the block has {len(block)} bytes; {num_rows} observation rows take {expected}")
    if len(table) != table_bytes or table_bytes > MAX_CHUNK_BYTES:
        raise CodecError(f"the table has {len(table)} bytes; its head says {table_bytes}")
    values = _read_table(contract, table, num_steps)
    columns = {name: values[name] for name, _ in contract.table_columns[: len(values) - len(contract.extras)]}
    _check_columns(columns, num_rows, own_steps)
    extras = {extra.name: values[_EXTRA_PREFIX + extra.name] for extra in contract.extras}
    return Chunk(
        columns,
        extras,
        _split_block(contract.obs, block, num_rows),
        own_steps,
        stored_bytes=stored_bytes(head, table, block),
        contract=contract,
    )


def _read_head(head: bytes) -> tuple[Any, ...]:
    if len(head) != _HEAD.size:
        raise CodecError(f"a chunk's head has {_HEAD.size} bytes, got {len(head)}")
    fields = _HEAD.unpack(head)
    if fields[0] != _MAGIC:
        raise CodecError(f"a chunk's head starts with {_MAGIC!r}, got {fields[0]!r}")
    if fields[1] != FORMAT_VERSION or fields[2] != 0:
        raise CodecError(f"chunk format {fields[1]} (flags {fields[2]}) is not known; this program reads {FORMAT_VERSION}")
    return fields


def _split_block(obs: ObsSpec, block: bytes, num_rows: int) -> list[NDArray[Any]]:
    leaves, offset = [], 0
    for leaf in obs.leaves:
        count = num_rows * int(np.prod(leaf.shape, dtype=np.int64))
        array = np.frombuffer(block, leaf.dtype, count, offset) if count else np.empty(0, leaf.dtype)
        leaves.append(array.reshape(num_rows, *leaf.shape))
        offset += num_rows * leaf.nbytes
    return leaves


def _read_table(contract: Contract, table: bytes, num_steps: int) -> dict[str, NDArray[Any]]:
    try:
        message = pa.ipc.read_message(table)
        if message.type != "record batch":
            raise CodecError(f"the table is an Arrow {message.type}, not a record batch")
        if _is_compressed(bytes(message.metadata)):
            raise CodecError("the table has compressed buffers; send it uncompressed")
        batch = pa.ipc.read_record_batch(message, contract.table_schema)
        if batch.num_rows != num_steps:
            raise CodecError(f"the table has {batch.num_rows} steps; its head says {num_steps}")
        batch.validate(full=True)
        return {
            name: _to_numpy(spec, batch.column(index), name) for index, (name, spec) in enumerate(contract.table_columns)
        }
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error, IndexError) as error:
        raise CodecError(f"the table is not a readable Arrow record batch: {error}") from error


def _check_columns(columns: Mapping[str, NDArray[Any]], num_rows: int, own_steps: int) -> None:
    rows = columns["obs_row"]
    if rows[0] < 0 or rows[-1] > num_rows - 2 or (np.diff(rows) <= 0).any():
        raise CodecError(f"observation rows must rise from 0 to at most {num_rows - 2}")
    for name in ("terminated", "truncated", "own"):
        if columns[name].max() > 1:
            raise CodecError(f"column {name} must be 0 or 1, got {columns[name].max()}")
    if int(columns["own"].sum()) != own_steps:
        raise CodecError(f"{int(columns['own'].sum())} steps are marked as own; the head says {own_steps}")
    if columns["slot"].min() < 0 or columns["step"].min() < 0:
        raise CodecError("slots and step numbers must be >= 0")


def _arrow_type(spec: ArraySpec) -> pa.DataType:
    dtype = np.dtype(np.uint8) if spec.dtype == np.bool_ else spec.dtype
    value = pa.from_numpy_dtype(dtype)
    return value if spec.shape == () else pa.list_(pa.field("item", value, nullable=False), _size(spec))


def _to_arrow(spec: ArraySpec, array: NDArray[Any]) -> pa.Array:
    if array.dtype != spec.dtype or array.shape[1:] != spec.shape:
        raise ValueError(f"column {spec.name} must be [steps, {spec.shape}] {spec.dtype}, got {array.shape} {array.dtype}")
    values = np.ascontiguousarray(array)
    arrow = _arrow_type(spec)
    if spec.shape == ():
        return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(values)])
    flat = pa.Array.from_buffers(arrow.value_type, values.size, [None, pa.py_buffer(values)])
    return pa.FixedSizeListArray.from_arrays(flat, type=arrow)


def _to_numpy(spec: ArraySpec, column: pa.Array, name: str) -> NDArray[Any]:
    if column.null_count:
        raise CodecError(f"column {name} has {column.null_count} nulls")
    length = len(column)
    if spec.shape != ():
        column = column.flatten()
        if column.null_count or len(column) != length * _size(spec):
            raise CodecError(f"column {name} has missing values")
    array = column.to_numpy(zero_copy_only=True)
    if spec.dtype == np.bool_:
        if array.size and array.max() > 1:
            raise CodecError(f"column {name} must be 0 or 1")
        array = array.view(np.bool_)
    return array.reshape(length, *spec.shape)


def _size(spec: ArraySpec) -> int:
    return int(np.prod(spec.shape, dtype=np.int64))


def _is_compressed(metadata: bytes) -> bool:
    """Whether an Arrow message's flatbuffer declares body compression (RecordBatch field 3; Message field 2 is its header).

    Source: the Arrow columnar format, Message.fbs; read by hand because pyarrow does not expose it before decompressing.
    """
    message = _u32(metadata, 0)
    header_field = _table_field(metadata, message, 2)
    if header_field == 0:
        raise CodecError("the table's Arrow message has no header")
    record_batch = header_field + _u32(metadata, header_field)
    return _table_field(metadata, record_batch, 3) != 0


def _table_field(buffer: bytes, table: int, index: int) -> int:
    """Position of a field of a flatbuffer table, 0 if it is absent."""
    vtable = table - int(struct.unpack_from("<i", buffer, table)[0])
    if vtable < 0:
        raise CodecError("the table's Arrow message is corrupt")
    slot = 4 + 2 * index
    if slot >= struct.unpack_from("<H", buffer, vtable)[0]:
        return 0
    offset = int(struct.unpack_from("<H", buffer, vtable + slot)[0])
    return table + offset if offset else 0


def _u32(buffer: bytes, position: int) -> int:
    return int(struct.unpack_from("<I", buffer, position)[0])


def _allocated(size: int) -> int:
    """Size class jemalloc gives an allocation: four classes for each doubling (and a string's header of 16 bytes)."""
    size = max(size + 16, 16)
    spacing = max(16, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // spacing) * spacing
