"""The table of a chunk: NumPy columns as one Arrow IPC record batch message, and back, without a copy.

Called by `codec`. Arrow does not protect a reader against hostile bytes: the number of rows is compared with the
chunk's head, compressed buffers (whose size would be the sender's word) are refused before Arrow sees them, and the
batch is validated in full before anything of it is read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec

#: Name on the wire and what one row holds, in order.
Columns = Sequence[tuple[str, ArraySpec]]


def schema_of(columns: Columns) -> pa.Schema:
    """The Arrow schema of a table with these columns; those whose rows are empty stay out of it."""
    return pa.schema([pa.field(name, _arrow_type(spec), nullable=False) for name, spec in columns if spec.nbytes])


def write_table(columns: Columns, schema: pa.Schema, values: Mapping[str, NDArray[Any]]) -> bytes:
    """Serialize columns [n, ...], each of the dtype and shape its spec says.

    Raises:
        ValueError: one is not.
    """
    arrays = [to_arrow(spec, values[name]) for name, spec in columns if spec.nbytes]
    return bytes(pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes())


def read_table(
    columns: Columns, schema: pa.Schema, table: bytes | memoryview, num_rows: int
) -> dict[str, NDArray[Any]]:
    """Read a table back: views on `table`, [num_rows, ...] each.

    Raises:
        CodecError: the bytes are not a table of these columns and that many rows.
    """
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
        return {name: to_numpy(spec, next(stored) if spec.nbytes else None, num_rows) for name, spec in columns}
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error, IndexError) as error:
        raise CodecError(f"the table is not a readable Arrow record batch: {error}") from error


def _arrow_type(spec: ArraySpec) -> pa.DataType:
    # Never of size zero: Arrow divides by a list's size, and the processor ends the process for it.
    dtype = np.dtype(np.uint8) if spec.dtype == np.bool_ else spec.dtype
    value = pa.from_numpy_dtype(dtype)
    return value if spec.shape == () else pa.list_(pa.field("item", value, nullable=False), math.prod(spec.shape))


def to_arrow(spec: ArraySpec, array: NDArray[Any]) -> pa.Array:
    """One column, a view where that is possible.

    Raises:
        ValueError: the array is not of the spec's dtype and shape.
    """
    if array.dtype != spec.dtype or array.shape[1:] != spec.shape:
        wanted = f"[steps, {spec.shape}] {spec.dtype}"
        raise ValueError(f"column {spec.name} must be {wanted}, got {array.shape} {array.dtype}")
    values = np.ascontiguousarray(array)
    arrow = _arrow_type(spec)
    if spec.shape == ():
        return pa.Array.from_buffers(arrow, len(values), [None, pa.py_buffer(values)])
    flat = pa.Array.from_buffers(arrow.value_type, values.size, [None, pa.py_buffer(values)])
    return pa.FixedSizeListArray.from_arrays(flat, type=arrow)


def to_numpy(spec: ArraySpec, column: pa.Array | None, num_rows: int) -> NDArray[Any]:
    """One column [num_rows, ...], a view; None stands for a column whose rows are empty.

    Raises:
        CodecError: it has nulls, missing values, or numbers other than 0 and 1 where these are booleans.
    """
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
            raise CodecError(f"column {spec.name} must be 0 or 1")
        array = array.view(np.bool_)
    return array.reshape(num_rows, *spec.shape)


def _is_compressed(metadata: bytes) -> bool:
    """Whether an Arrow message's flatbuffer declares body compression: field 3 of its header (field 2), a RecordBatch.

    Source: the Arrow columnar format, Message.fbs. Read by hand: pyarrow does not tell before it decompresses.
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
