"""The rows of an archive: chunks as flat columns that people can read, and back, exactly.

A row is an observation row of a chunk, stored once, with the step that was taken from it:

| column | content |
|---|---|
| `chunk` | number of the chunk in the archive, from 0 |
| `sender`, `sequence` | who sent the chunk (place in the manifest's `senders`), and its number there |
| `segment` | number of the run of consecutive rows in the chunk |
| `slot` | environment of the sender |
| `step` | number of the row's step in its episode |
| `kind` | `step`: a step of this chunk; `lookahead`: one that the next chunk owns; `end`: where the step before led; |
| | `history`: a frame that only the stacks of later rows need |
| `action`, `reward`, `terminated`, `truncated`, `version`, `extra.*` | the step; zeros in `end` and `history` rows |
| `obs`, or `obs.NAME` for each leaf | the observation, flattened; the field's metadata has its `shape` |

The next observation of a step is the `obs` of the row below it. Rows of `lookahead` are there for n-step returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec
from surreal.base.values import MAX_VERSION, describe_unsound, unsound_rows
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.data_contract import EXTRA_PREFIX, PRIORITY_COLUMN, Contract
from surreal.distributed.experience.payload import schema_of, to_arrow, to_numpy

HISTORY, STEP, LOOKAHEAD, END = range(4)
KIND_NAMES = ("history", "step", "lookahead", "end")

_INT32, _INT64, _BOOL = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)
_PLACE: tuple[tuple[str, np.dtype[Any]], ...] = (
    ("chunk", _INT64),
    ("sender", _INT32),
    ("sequence", _INT64),
    ("segment", _INT32),
    ("slot", _INT32),
    ("step", _INT64),
)
_FLAGS = ("terminated", "truncated")
Columns = Mapping[str, NDArray[Any]]


class ArchivedChunk(NamedTuple):
    """A chunk as an archive holds it: what `codec.encode` takes, and where it came from."""

    number: int  #: in the archive
    sender: int  #: place in the manifest's list
    sequence: int  #: number among the sender's chunks
    segments: NDArray[np.int32]  #: [S, 5], as in a chunk's head
    columns: dict[str, NDArray[Any]]  #: [n_steps, ...], `Contract.table_columns`
    leaves: list[NDArray[Any]]  #: [n_rows, *leaf_shape]


def step_columns(contract: Contract) -> list[tuple[str, ArraySpec]]:
    """Columns of a step: names in the archive, and the type of each row."""
    columns = []
    for name, spec in contract.table_columns:
        if name == "flags":
            columns += [(flag, ArraySpec(flag, (), _BOOL)) for flag in _FLAGS]
        else:
            columns.append((name, spec))
    return columns


def leaf_columns(contract: Contract) -> list[tuple[str, ArraySpec]]:
    """Columns of an observation (of one frame, where observations are stacks)."""
    return [(f"obs.{leaf.name}" if leaf.name else "obs", leaf) for leaf in contract.obs.leaves]


def archive_schema(contract: Contract) -> pa.Schema:
    """The Arrow schema of an archive's files; columns whose rows are empty stay out of it."""
    fields = [pa.field(name, pa.from_numpy_dtype(dtype), nullable=False) for name, dtype in _PLACE]
    fields.append(pa.field("kind", pa.utf8(), nullable=False))
    for name, spec in _array_columns(contract):
        for field in schema_of([(name, spec)]):
            if name in _FLAGS:
                field = pa.field(name, pa.bool_(), nullable=False)
            fields.append(field.with_metadata({"shape": json.dumps(list(spec.shape))}))
    return pa.schema(fields)


def rows_of(contract: Contract, chunk: Chunk, *, number: int, sender: int, sequence: int) -> dict[str, NDArray[Any]]:
    """The rows of one chunk, by column; `kind` as a number."""
    segment, step, kind = _layout(chunk.segments)
    size = len(kind)
    is_step = (kind == STEP) | (kind == LOOKAHEAD)
    rows: dict[str, NDArray[Any]] = {
        "chunk": np.full(size, number, _INT64),
        "sender": np.full(size, sender, _INT32),
        "sequence": np.full(size, sequence, _INT64),
        "segment": segment,
        "slot": chunk.segments[segment, 2].astype(_INT32),
        "step": step,
        "kind": kind,
    }
    for name, spec in step_columns(contract):
        column = np.zeros((size, *spec.shape), spec.dtype)
        column[is_step] = _step_values(chunk, name)
        rows[name] = column
    for (name, _), leaf in zip(leaf_columns(contract), chunk.leaves, strict=True):
        rows[name] = leaf
    return rows


def to_record_batch(contract: Contract, schema: pa.Schema, parts: Sequence[Columns]) -> pa.RecordBatch:
    """The rows of several chunks as one Arrow record batch."""

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([rows[name] for rows in parts])

    arrays = [pa.array(joined(name)) for name, _ in _PLACE]
    kinds = pa.DictionaryArray.from_arrays(pa.array(joined("kind").astype(np.int8)), pa.array(KIND_NAMES))
    arrays.append(kinds.cast(pa.utf8()))
    for name, spec in _array_columns(contract):
        if name in _FLAGS:
            arrays.append(pa.array(joined(name)))
        elif spec.nbytes:
            arrays.append(to_arrow(spec, joined(name)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def chunks_of(contract: Contract, batch: pa.RecordBatch, first_row: int = 0) -> Iterator[ArchivedChunk]:
    """The chunks of a record batch of `archive_schema(contract)`, rows of whole chunks, in order; raises `CodecError`
    with the row, counted from `first_row`.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CodecError(f"its rows are not valid: {error}") from error
    rows = _read_columns(contract, batch, first_row)
    numbers = rows["chunk"]
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for begin, end in pairwise(starts):
        if end > begin:
            yield _chunk_of(contract, {name: column[begin:end] for name, column in rows.items()}, first_row + begin)


def _array_columns(contract: Contract) -> list[tuple[str, ArraySpec]]:
    return step_columns(contract) + leaf_columns(contract)


def _layout(segments: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int8]]:
    """Segment, step number and kind of each observation row of a chunk."""
    rows = segments[:, 0].astype(np.int64)
    segment = np.repeat(np.arange(len(rows), dtype=np.int32), rows)
    own, first, history = (segments[:, column].astype(np.int64)[segment] for column in (1, 3, 4))
    within = np.arange(len(segment)) - (np.cumsum(rows) - rows)[segment] - history
    is_end = within == rows[segment] - 1 - history
    kind = np.where(within < own, STEP, LOOKAHEAD).astype(np.int8)
    kind[within < 0] = HISTORY
    kind[is_end] = END
    return segment, first + within, kind


def _step_values(chunk: Chunk, name: str) -> NDArray[Any]:
    if name in _FLAGS:
        return chunk.terminated if name == "terminated" else chunk.truncated
    if name.startswith(EXTRA_PREFIX):
        return chunk.extras[name.removeprefix(EXTRA_PREFIX)]
    return chunk.columns[name]


def _read_columns(contract: Contract, batch: pa.RecordBatch, first_row: int) -> dict[str, NDArray[Any]]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            raise CodecError(f"row {first_row + pc.index(column.is_null(), True).as_py()}: {name} is missing")
    size = batch.num_rows
    rows: dict[str, NDArray[Any]] = {name: batch.column(name).to_numpy() for name, _ in _PLACE}
    kinds = pc.index_in(batch.column("kind"), value_set=pa.array(KIND_NAMES))
    if kinds.null_count:
        row = pc.index(kinds.is_null(), True).as_py()
        kind = batch.column("kind")[row].as_py()
        raise CodecError(f"row {first_row + row}: kind is {kind[:20]!r}; it must be {', '.join(KIND_NAMES)}")
    rows["kind"] = kinds.to_numpy().astype(np.int8)
    for name, spec in _array_columns(contract):
        if name in _FLAGS:
            rows[name] = batch.column(name).to_numpy(zero_copy_only=False)
        else:
            rows[name] = to_numpy(spec, batch.column(name) if spec.nbytes else None, size, first_row)
        if name != EXTRA_PREFIX + PRIORITY_COLUMN and (bad := unsound_rows(rows[name])).any():
            row = int(bad.argmax())
            problem = describe_unsound({name: rows[name][row : row + 1]})
            raise CodecError(f"row {first_row + row} cannot be learned from: {problem}")
    bad = (rows["version"] < -1) | (rows["version"] > MAX_VERSION)
    if bad.any():
        row = int(bad.argmax())
        raise CodecError(f"row {first_row + row}: version is {rows['version'][row]}; it must be -1 .. {MAX_VERSION}")
    return rows


def _chunk_of(contract: Contract, rows: Columns, first_row: int) -> ArchivedChunk:
    segment, kind = rows["segment"], rows["kind"]
    number = int(rows["chunk"][0])
    starts = np.flatnonzero(np.diff(segment, prepend=-1))
    ids = np.arange(len(starts), dtype=np.int64)
    lengths = np.diff(starts, append=len(segment))
    which = np.repeat(ids, lengths)
    counts = [np.bincount(which[kind == wanted], minlength=len(ids)) for wanted in (STEP, HISTORY)]
    segments = np.stack(
        [lengths, counts[0], rows["slot"][starts], rows["step"][starts] + counts[1], counts[1]], axis=1
    ).astype(np.int32)
    is_possible = (lengths >= counts[1] + 2).all() and segments.min() >= 0
    if not is_possible or not _is_laid_out(rows, segments) or segments[:, 4].max() >= contract.stack:
        last_row = first_row + len(segment) - 1
        raise CodecError(f"rows {first_row} to {last_row}, of chunk {number}, do not form segments")
    is_step = (kind == STEP) | (kind == LOOKAHEAD)
    columns = {name: rows[name][is_step] for name, _ in step_columns(contract)}
    terminated, truncated = (columns.pop(flag).astype(np.uint8) for flag in _FLAGS)
    columns["flags"] = terminated | truncated << 1
    leaves = [np.ascontiguousarray(rows[name]) for name, _ in leaf_columns(contract)]
    return ArchivedChunk(number, int(rows["sender"][0]), int(rows["sequence"][0]), segments, columns, leaves)


def _is_laid_out(rows: Columns, segments: NDArray[np.int32]) -> bool:
    """Whether the rows fit these segments, and all belong to one chunk of one sender."""
    segment, step, kind = _layout(segments)
    constant = all((rows[name] == rows[name][0]).all() for name in ("sender", "sequence"))
    expected = {"segment": segment, "step": step, "kind": kind, "slot": segments[segment, 2]}
    return constant and all(np.array_equal(rows[name], values) for name, values in expected.items())
