"""Rows as bytes: named columns, of one shape or of sequences of different lengths; and `Mirror`, their copy."""

from __future__ import annotations

import json
import struct
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.distributed.connection.retry import parse_entry_id

#: Columns by name: an array [B, ...], or a list of B sequences, arrays [L, ...] whose lengths L may differ.
Rows = Mapping[str, Any]
#: Checked columns: an array [B, ...], or for sequences an array of objects [B].
Columns = dict[str, NDArray[Any]]

#: CRC-32 of the rest, bytes of the header.
_PREFIX = struct.Struct("<II")
_KINDS = "biufc"
_name_of = cache(str)  #: NumPy makes the name of a dtype slowly


def make_columns(rows: Rows) -> Columns:
    """Check rows, and turn each column into an array. Raises `ValueError` for no row, columns of different lengths, or
    sequences that do not fit each other, `TypeError` for anything else than numbers.
    """
    columns = {str(name): _column(str(name), value) for name, value in rows.items()}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"rows need columns of one length; these have {lengths or 'none'}")
    if not next(iter(lengths.values())):
        raise ValueError("there are no rows")
    return columns


def _column(name: str, value: Any) -> NDArray[Any]:
    if isinstance(value, Sequence) and len(value) and all(np.ndim(each) for each in value):
        parts = [_numbers(name, each) for each in value]
        if len({(part.dtype, part.shape[1:]) for part in parts}) > 1:
            raise ValueError(f"the sequences of {name} may differ only in length")
        return _objects(parts)
    column = _numbers(name, value)
    if not column.ndim:
        raise ValueError(f"{name} is one number; a column has an entry for each row")
    return column


def _objects(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    column = np.empty(len(parts), object)
    for i, part in enumerate(parts):  # at once, NumPy would try to stack them
        column[i] = part
    return column


def _numbers(name: str, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is not an array: {error}") from error
    if array.dtype.kind not in _KINDS:
        raise TypeError(f"{name} has dtype {array.dtype}; rows hold numbers")
    return np.ascontiguousarray(array) if array.ndim else array


def pack(columns: Columns) -> bytes:
    """Turn columns into bytes, with a checksum."""
    header: list[list[Any]] = []
    pieces = []
    for name, column in columns.items():
        lengths = [len(part) for part in column] if column.dtype == object else None
        flat = column if lengths is None else np.concatenate(column)
        header.append([name, flat.dtype.str, list(flat.shape), lengths])
        pieces.append(flat.tobytes())
    head = json.dumps(header).encode()
    body = b"".join([head, *pieces])
    return _PREFIX.pack(zlib.crc32(body), len(head)) + body


def unpack(data: bytes) -> Columns:
    """Read columns from bytes; arrays are views of them. Raises `CodecError` if the bytes are damaged."""
    try:
        checksum, length = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if zlib.crc32(body) != checksum:
            raise CodecError("rows are damaged: their checksum is wrong")
        columns, position = {}, length
        for name, dtype, shape, lengths in json.loads(bytes(body[:length])):
            flat = np.frombuffer(body, dtype, int(np.prod(shape)), position).reshape(shape)
            position += flat.nbytes
            columns[name] = flat if lengths is None else _objects(np.split(flat, np.cumsum(lengths)[:-1]))
    except (struct.error, ValueError, TypeError) as error:
        raise CodecError(f"rows are damaged: {error}") from error
    return columns


def join(parts: Sequence[Columns]) -> Columns:
    """Put the rows of several columns after each other; raises `ValueError` if names, shapes or dtypes differ."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    for part in parts[1:]:
        if describe(part) != describe(first):
            raise ValueError(f"rows have different columns: {describe(part)} after {describe(first)}")
    return {name: np.concatenate([part[name] for part in parts]) for name in first}


def describe(columns: Columns) -> str:
    """Describe the entries of each column: dtype, shape, and `*` for the length of a sequence."""
    found = []
    for name, column in columns.items():
        is_sequence = column.dtype == object
        entry = column[0] if is_sequence else column
        shape = ["*" if is_sequence else None, *entry.shape[1:]][not is_sequence :]
        found.append(f"{name}: {_name_of(entry.dtype)}[{', '.join(map(str, shape))}]")
    return ", ".join(found)


_LEAST_ROOM = 1024


class Mirror:
    """Rows in the order of their entries: the newest are appended, the oldest forgotten.

    Columns are arrays with room at both ends, so that rows are copied a few times at most and drawn by one index.
    """

    def __init__(self) -> None:
        self._columns: Columns = {}
        self._versions = np.empty(0, np.int64)
        self._begin = self._end = 0
        self._entries: deque[tuple[tuple[int, int], int]] = deque()  # id and rows
        self.last = b"0-0"  #: id of the entry after which to read

    def __len__(self) -> int:
        return self._end - self._begin

    def append(self, entry: bytes, columns: Columns, version: int) -> None:
        """Add the rows of the next entry; raises `ValueError` if names, shapes or dtypes differ from before."""
        rows = len(next(iter(columns.values())))
        if self._columns:  # compares them
            join([{name: column[:1] for name, column in part.items()} for part in (self._columns, columns)])
        if self._end + rows > len(self._versions):
            self._make_room(columns, rows)
        place = slice(self._end, self._end + rows)
        for name, column in columns.items():
            self._columns[name][place] = column
        self._versions[place] = version
        self._end += rows
        self._entries.append((parse_entry_id(entry), rows))

    def forget_before(self, entry: bytes | None) -> None:
        """Forget the entries before this one; None: all."""
        while self._entries and (entry is None or self._entries[0][0] < parse_entry_id(entry)):
            self._begin += self._entries.popleft()[1]

    def sample(self, size: int, rng: np.random.Generator, min_version: int) -> Columns | None:
        """Draw rows uniformly, with replacement; None if there are none of `min_version` or newer."""
        if min_version > 0:
            fresh = self._begin + np.flatnonzero(self._versions[self._begin : self._end] >= min_version)
            if not len(fresh):
                return None
            drawn: NDArray[np.int64] = fresh[rng.integers(0, len(fresh), size)]
        elif len(self):
            drawn = rng.integers(self._begin, self._end, size)
        else:
            return None
        return {name: column[drawn] for name, column in self._columns.items()}

    def _make_room(self, columns: Columns, rows: int) -> None:
        alive = slice(self._begin, self._end)
        room = max(_LEAST_ROOM, 2 * (len(self) + rows))

        def grow(old: NDArray[Any] | None, like: NDArray[Any]) -> NDArray[Any]:
            new = np.empty((room, *like.shape[1:]), like.dtype)
            if old is not None:
                new[: len(self)] = old[alive]
            return new

        self._columns = {name: grow(self._columns.get(name), column) for name, column in columns.items()}
        self._versions = grow(self._versions, self._versions)
        self._begin, self._end = 0, len(self)
