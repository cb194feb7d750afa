"""The two payloads of a chunk, for `codec`: its table (an Arrow record batch) and its block (observation rows).

Neither is trusted when it is read. Arrow does not protect against hostile bytes, so the number of rows is compared with
the chunk's head, compressed buffers (whose size only the sender declares) are refused, and the batch is validated in
full. A compressed leaf of a block must fill exactly the array whose size follows from the number of rows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec, ObsSpec

#: Name in the table, and content of one row, in order.
Columns = Sequence[tuple[str, ArraySpec]]
#: Compressions of blocks, by their names in pyarrow.
COMPRESSIONS = ("lz4", "zstd")


def schema_of(columns: Columns, sparse: AbstractSet[str] = frozenset()) -> pa.Schema:
    """Return the Arrow schema of a table; columns with empty rows are left out.

    Some rows of a `sparse` column are missing: it has lists in them, of all of the row's numbers or of none.
    """
    fields = [(name, _arrow_type(spec, is_sparse=name in sparse)) for name, spec in columns if spec.nbytes]
    return pa.schema([pa.field(name, arrow, nullable=False) for name, arrow in fields])


def write_table(
    columns: Columns, schema: pa.Schema, values: Mapping[str, NDArray[Any]], kept: NDArray[np.bool_] | None = None
) -> bytes:
    """Serialize columns [n, ...], of sparse ones the rows `kept` [n]; raises `ValueError` as `to_arrow`."""
    stored = zip(schema.types, [column for column in columns if column[1].nbytes], strict=True)
    arrays = [
        to_arrow(spec, values[name])
        if kept is None or not pa.types.is_list(arrow)
        else _to_lists(arrow, spec, values[name], kept)
        for arrow, (name, spec) in stored
    ]
    return bytes(pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes())


def read_table(
    columns: Columns, schema: pa.Schema, table: bytes | memoryview, num_rows: int, kept: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[Any]]:
    """Read a table: views [num_rows, ...], and copies of sparse columns; raises `CodecError` if it is another."""
    try:
        message = pa.ipc.read_message(table)
        if message.type != "record batch":
            raise CodecError(f"the table is an Arrow {message.type}, not a record batch")
        if _is_compressed(bytes(message.metadata)):
            raise CodecError("the table has compressed buffers; send it uncompressed")
        batch = pa.ipc.read_record_batch(message, schema)
        if batch.num_rows != num_rows:
            raise CodecError(f"the table has {batch.num_rows} steps; its head says {num_rows}")
        batch.validate(full=True)
        stored = iter(batch.columns)
        found = {}
        for name, spec in columns:
            column = next(stored) if spec.nbytes else None
            if kept is not None and isinstance(column, pa.ListArray):
                found[name] = _from_lists(spec, column, kept)
            else:
                found[name] = to_numpy(spec, column, num_rows)
        return found
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error, IndexError) as error:
        raise CodecError(f"the table is not a readable Arrow record batch: {error}") from error


@lru_cache(maxsize=256)
def _arrow_type(spec: ArraySpec, *, is_sparse: bool = False) -> pa.DataType:
    # Never of size zero: Arrow divides by a list's size, which would crash the process.
    dtype = np.dtype(np.uint8) if spec.dtype == np.bool_ else spec.dtype
    value = pa.from_numpy_dtype(dtype)
    item = pa.field("item", value, nullable=False)
    return pa.list_(item) if is_sparse else value if spec.shape == () else pa.list_(item, math.prod(spec.shape))


def to_arrow(spec: ArraySpec, array: NDArray[Any]) -> pa.Array:
    """Convert one column, as a view if possible; raises `ValueError` if dtype or shape are not the spec's."""
    if array.dtype != spec.dtype or array.shape[1:] != spec.shape:
        wanted = f"[steps, {spec.shape}] {spec.dtype}"
        raise ValueError(f"column {spec.name} must be {wanted}, got {array.shape} {array.dtype}")
    values = np.ascontiguousarray(array)
    arrow = _arrow_type(spec)
    if spec.shape == ():
        return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(values)])
    flat = pa.Array.from_buffers(arrow.value_type, values.size, [None, pa.py_buffer(values)])
    return pa.FixedSizeListArray.from_arrays(flat, type=arrow)


def _to_lists(arrow: pa.DataType, spec: ArraySpec, array: NDArray[Any], kept: NDArray[np.bool_]) -> pa.Array:
    ends = np.append(0, np.cumsum(kept * math.prod(spec.shape))).astype(np.int32)
    rows = to_arrow(spec, array[kept]).flatten()
    return pa.Array.from_buffers(arrow, len(kept), [None, pa.py_buffer(ends)], children=[rows])


def _from_lists(spec: ArraySpec, lists: pa.Array, kept: NDArray[np.bool_]) -> NDArray[Any]:
    lengths = np.diff(lists.offsets.to_numpy())
    if lists.null_count or (lengths != kept * math.prod(spec.shape)).any():
        raise CodecError(f"column {spec.name} has rows in other steps than its contract says")
    array = np.zeros((len(kept), *spec.shape), spec.dtype)
    array[kept] = to_numpy(spec, lists, int(kept.sum()))
    return array


def to_numpy(spec: ArraySpec, column: pa.Array | None, num_rows: int, first_row: int = 0) -> NDArray[Any]:
    """Convert a column to a view [num_rows, ...]; None: rows are empty. Raises `CodecError` with the row's number."""
    if column is None:
        return np.empty((num_rows, *spec.shape), spec.dtype)
    if column.null_count:
        raise CodecError(f"column {spec.name} has {column.null_count} nulls")
    if spec.shape != ():
        column = column.flatten()
        if column.null_count or len(column) != num_rows * math.prod(spec.shape):
            raise CodecError(f"column {spec.name} has missing values")
    array: NDArray[Any] = column.to_numpy(zero_copy_only=True)
    if spec.dtype == np.bool_:
        if array.size and array.max() > 1:
            row = first_row + int((array > 1).argmax()) // math.prod(spec.shape)
            raise CodecError(f"column {spec.name} must be 0 or 1, and in row {row}, it is not")
        array = array.view(np.bool_)
    return array.reshape(num_rows, *spec.shape)


def _is_compressed(metadata: bytes) -> bool:
    """Whether an Arrow message's flatbuffer declares body compression: field 3 of its header (field 2), a RecordBatch.

    Source: the Arrow columnar format, Message.fbs. pyarrow does not report compression before it decompresses.
    """
    message = int(struct.unpack_from("<I", metadata, 0)[0])
    header_field = _table_field(metadata, message, 2)
    if header_field == 0:
        raise CodecError("the table's Arrow message has no header")
    record_batch = header_field + int(struct.unpack_from("<I", metadata, header_field)[0])
    return _table_field(metadata, record_batch, 3) != 0


def _table_field(buffer: bytes, table: int, index: int) -> int:
    """Return the position of a field of a flatbuffer table, 0 if it is absent."""
    vtable = table - int(struct.unpack_from("<i", buffer, table)[0])
    if vtable < 0:
        raise CodecError("the table's Arrow message is corrupt")
    slot = 4 + 2 * index
    if slot >= struct.unpack_from("<H", buffer, vtable)[0]:
        return 0
    offset = int(struct.unpack_from("<H", buffer, vtable + slot)[0])
    return table + offset if offset else 0


def write_block(leaves: Sequence[NDArray[Any]], compression: str | None) -> tuple[memoryview, ...]:
    """Return the block in pieces, one per leaf; without compression, nothing is copied."""
    pieces = [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data for leaf in leaves]
    if compression is not None:
        codec = pa.Codec(compression)
        pieces = [memoryview(codec.compress(piece)) if piece.nbytes else piece for piece in pieces]
    return tuple(pieces)


def read_block(
    obs: ObsSpec, block: bytes | memoryview, num_rows: int, compression: str | None = None, sizes: Sequence[int] = ()
) -> list[NDArray[Any]]:
    """Read a block, one array [num_rows, *shape] per leaf; raises `CodecError` for another number of rows.

    The caller has checked that so many rows may be allocated, and that a block without compression has the right
    length. `sizes` are the compressed bytes of each leaf.
    """
    if compression is None:
        sizes = [num_rows * leaf.nbytes for leaf in obs.leaves]
    elif sum(sizes) != len(block):
        raise CodecError(f"the block has {len(block)} bytes; its leaves have {sum(sizes)}")
    leaves, offset, view = [], 0, memoryview(block)
    for leaf, size in zip(obs.leaves, sizes, strict=True):
        rows: Any = view[offset : offset + size]
        if compression is not None:
            rows = _decompress(rows, compression, np.empty(num_rows * leaf.nbytes, np.uint8), leaf.name)
        array = np.frombuffer(rows, leaf.dtype) if len(rows) else np.empty(0, leaf.dtype)
        leaves.append(array.reshape(num_rows, *leaf.shape))
        offset += size
    return leaves


def _decompress(piece: memoryview, compression: str, out: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    if not piece and not out.nbytes:
        return out
    # As a stream: pyarrow's whole-buffer form does not report lz4 data that end too early.
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(piece)), compression)
        number = stream.readinto(out) if out.nbytes else 0
        is_exact = number == out.nbytes and not stream.read(1)
    except (pa.ArrowException, OSError) as error:
        raise CodecError(f"leaf {name!r} of the block is not {compression} data: {error}") from error
    if not is_exact:
        raise CodecError(f"leaf {name!r} of the block does not decompress to {out.nbytes} bytes")
    return out


def stored_bytes(entry_bytes: int, content_bytes: int) -> int:
    """Estimate from above the bytes that Redis needs for a chunk, with allocator rounding and bookkeeping."""
    return _allocated(content_bytes) + _allocated(entry_bytes) + 512


def _allocated(size: int) -> int:
    """Round up to jemalloc's size class: four classes for each doubling (plus 16 bytes for a string's header)."""
    size = max(size + 16, 16)
    spacing = max(16, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // spacing) * spacing
