"""Observation rows in this process, as they are or compressed, in rings of preallocated columns.

`TransitionStore` names rows by sequence numbers, which only grow. Batches are the same with each strategy:
`MirroredRows`, `CompressedRows`, or `RemoteRows` (in `remote_rows`).
"""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec
from surreal.distributed.experience.codec import Chunk, Contract


class Ring:
    """Columns of equal length, addressed by sequence number: a row is in the slot `number % size`, which grows."""

    def __init__(self, shapes: Mapping[str, tuple[tuple[int, ...], Any]], size: int) -> None:
        self.size = max(size, 1)
        self.head = 0  # next sequence number
        self.tail = 0  # oldest live one
        # Number of slot 0 in the tail's lap. Rows beyond that lap are wrapped by `take`, faster than by a division.
        self._lap = 0
        self._shapes = dict(shapes)
        self.columns = self._allocate()

    def __len__(self) -> int:
        return self.head - self.tail

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def append(self, rows: Mapping[str, NDArray[Any]], count: int) -> int:
        """Copy rows in; returns the first one's sequence number."""
        if len(self) + count > self.size:
            self._grow(len(self) + count)
        first, begin = self.head, self.head % self.size
        split = min(count, self.size - begin)
        for name, column in self.columns.items():
            values = rows[name]
            column[begin : begin + split] = values[:split]
            if split < count:
                column[: count - split] = values[split:]
        self.head += count
        return first

    def free_until(self, sequence: int) -> None:
        self.tail, self._lap = sequence, sequence - sequence % self.size

    def take(self, name: str, sequences: NDArray[np.int64]) -> NDArray[Any]:
        return self.columns[name].take(sequences - self._lap, axis=0, mode="wrap")

    def _allocate(self) -> dict[str, NDArray[Any]]:
        return {name: np.empty((self.size, *shape), dtype) for name, (shape, dtype) in self._shapes.items()}

    def _grow(self, needed: int) -> None:
        live, before = np.arange(self.tail, self.head), self.columns
        old_slots = live % self.size
        self.size = needed + needed // 4
        self._lap = self.tail - self.tail % self.size
        self.columns = self._allocate()
        for name, column in self.columns.items():
            column[live % self.size] = before[name][old_slots]


class PackedRing(Ring):
    """A ring whose columns are the fields of one array, so that all of a row is in one place of the memory."""

    @property
    def nbytes(self) -> int:
        return self._records.nbytes

    def take(self, name: str, sequences: NDArray[np.int64]) -> NDArray[Any]:
        return self.take_records(sequences)[name]

    def take_records(self, sequences: NDArray[np.int64]) -> NDArray[np.void]:
        """Copy the rows with these sequence numbers; the columns are the fields of the result."""
        return self._records.take(sequences - self._lap, mode="wrap")

    def _allocate(self) -> dict[str, NDArray[Any]]:
        fields = [(name, dtype, shape) for name, (shape, dtype) in self._shapes.items()]
        self._records: NDArray[np.void] = np.empty(self.size, np.dtype(fields, align=True))
        return {name: self._records[name] for name in self._shapes}


def sample_uniform(rng: np.random.Generator, begin: int, end: int, size: int) -> NDArray[np.int64]:
    """Sample numbers [size] of begin .. end - 1, uniformly, with replacement; three times as fast as `rng.integers`.

    A float64 in [0, 1) times a number below 2**53 stays below it, and no number is more likely than another by more
    than one part in 2**53 / (end - begin).
    """
    return (rng.random(size) * (end - begin)).astype(np.int64) + begin


logger = logging.getLogger(__name__)

Place = Literal["mirrored", "compressed", "remote"]
Mode = Literal["mirrored", "compressed", "remote", "auto"]

#: One array [*shape of the rows, *leaf_shape] a leaf.
Leaves = list[NDArray[Any]]


class Observations(ABC):
    """Rows of observations, used by the replay's thread, which collects its requests in order.

    first = insert(chunk); ...; ask(rows); ...; collect(rows); ...; free_until(row)
    """

    #: Batches that should be asked for ahead of the one collected, so that a wait for one serves the next.
    asks_ahead = 0
    #: Rows that were asked for and were gone.
    gone_rows = 0

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    @property
    @abstractmethod
    def head(self) -> int:
        """Sequence number of the next row."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of observations in this process."""

    @abstractmethod
    def insert(self, chunk: Chunk) -> int:
        """Take in a chunk's rows; returns the first one's sequence number."""

    @abstractmethod
    def free_until(self, sequence: int) -> None:
        """Forget everything before this sequence number."""

    @abstractmethod
    def collect(self, rows: NDArray[np.int64]) -> Leaves | None:
        """Return copies of the rows of the oldest request, an array of any shape; None if some are gone."""

    def ask(self, rows: NDArray[np.int64]) -> None:
        """Announce the rows that will be collected."""

    def forget(self) -> None:
        """Drop requests that were not collected."""

    @property
    def gone_until(self) -> int:
        """All rows before this sequence number are gone."""
        return 0

    @property
    def has_gone(self) -> bool:
        """Whether any row is known to be gone that was not freed yet."""
        return False

    def are_gone(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the rows [B] that are known to be gone."""
        return np.zeros(len(rows), np.bool_)

    def close(self) -> None:
        """Close connections."""


class MirroredRows(Observations):
    """Rows in preallocated arrays of this process."""

    def __init__(self, contract: Contract, size: int) -> None:
        super().__init__(contract)
        self._leaves = {str(i): leaf for i, leaf in enumerate(contract.obs.leaves)}
        self.ring = Ring({name: self._form_of(leaf) for name, leaf in self._leaves.items()}, size)

    @property
    def head(self) -> int:
        return self.ring.head

    @property
    def nbytes(self) -> int:
        return self.ring.nbytes

    def insert(self, chunk: Chunk) -> int:
        if not chunk.leaves:
            raise ValueError("a chunk came without its observations, which are to be mirrored")
        return self.ring.append(dict(zip(self._leaves, chunk.leaves, strict=True)), chunk.num_rows)

    def free_until(self, sequence: int) -> None:
        self.ring.free_until(sequence)

    def collect(self, rows: NDArray[np.int64]) -> Leaves:
        return [self.ring.take(name, rows) for name in self._leaves]

    def _form_of(self, leaf: ArraySpec) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of a row of a leaf, as it is stored."""
        return leaf.shape, leaf.dtype


def rows_expected(capacity: int) -> int:
    """Observation rows to allocate for that many transitions: episodes and chunks have one more than steps."""
    return capacity + capacity // 8 + 1024


#: Without lz4's frame around it: a row's size is known, and the frame takes six times as long as a row.
_CODEC = pa.Codec("lz4_raw")
#: Smaller rows of a leaf stay uncompressed.
_LEAST_BYTES = 256


class CompressedRows(MirroredRows):
    """Rows that take a fraction of their memory, and are decompressed when they are sampled."""

    _packed_bytes = 0

    @property
    def nbytes(self) -> int:
        return self.ring.nbytes + self._packed_bytes

    def insert(self, chunk: Chunk) -> int:
        if not chunk.leaves:
            raise ValueError("a chunk came without its observations, which are to be kept")
        rows = zip(self._leaves.items(), chunk.leaves, strict=True)
        values = {name: self._pack(column) if _is_packed(leaf) else column for (name, leaf), column in rows}
        return self.ring.append(values, chunk.num_rows)

    def free_until(self, sequence: int) -> None:
        places = np.arange(self.ring.tail, sequence) % self.ring.size
        for name, leaf in self._leaves.items():
            if _is_packed(leaf):
                column = self.ring.columns[name]
                self._packed_bytes -= sum(map(sys.getsizeof, column[places]))
                column[places] = None
        super().free_until(sequence)

    def collect(self, rows: NDArray[np.int64]) -> Leaves:
        found = super().collect(rows)
        pairs = zip(self._leaves.values(), found, strict=True)
        return [self._unpack(leaf, column) if _is_packed(leaf) else column for leaf, column in pairs]

    def _form_of(self, leaf: ArraySpec) -> tuple[tuple[int, ...], Any]:
        return ((), object) if _is_packed(leaf) else super()._form_of(leaf)

    def _pack(self, rows: NDArray[Any]) -> NDArray[np.object_]:
        packed = np.empty(len(rows), np.object_)
        for i, row in enumerate(np.ascontiguousarray(rows).reshape(len(rows), -1)):
            packed[i] = _CODEC.compress(row, asbytes=True)
        self._packed_bytes += sum(map(sys.getsizeof, packed))
        return packed

    def _unpack(self, leaf: ArraySpec, found: NDArray[Any]) -> NDArray[Any]:
        out = np.empty((found.size, leaf.nbytes), np.uint8)
        for target, row in zip(out, found.ravel(), strict=True):
            target[:] = np.frombuffer(_CODEC.decompress(row, leaf.nbytes), np.uint8)
        return out.view(leaf.dtype).reshape(*found.shape, *leaf.shape)


def _is_packed(leaf: ArraySpec) -> bool:
    return leaf.nbytes >= _LEAST_BYTES
