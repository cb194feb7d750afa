"""CompressedRows: observation rows in this process, each compressed on its own."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.replay.store.observations import Leaves, Observations, Wanted
from surreal.replay.store.ring import Ring

#: Without lz4's frame around it: a row's size is known, and the frame takes six times as long as a row.
_CODEC = "lz4_raw"
#: Rows of a leaf that are smaller are kept as they are.
_LEAST_BYTES = 256


class CompressedRows(Observations):
    """Rows that take a fraction of their memory, and are decompressed when they are sampled.

    Args:
        contract: what the stream holds.
        size: rows expected to be alive, a first size.
    """

    def __init__(self, contract: Contract, size: int) -> None:
        super().__init__(contract)
        self._codec = pa.Codec(_CODEC)
        self._leaves = [(str(i), leaf, leaf.nbytes >= _LEAST_BYTES) for i, leaf in enumerate(contract.obs.leaves)]
        shapes = {name: ((), object) if packed else (leaf.shape, leaf.dtype) for name, leaf, packed in self._leaves}
        self._ring = Ring(shapes, size)
        self._packed_bytes = 0

    @property
    def head(self) -> int:
        return self._ring.head

    @property
    def nbytes(self) -> int:
        return self._ring.nbytes + self._packed_bytes

    def insert(self, chunk: Chunk) -> int:
        if not chunk.leaves:
            raise ValueError("a chunk came without its observations, which are to be kept")
        values = {
            name: self._pack(rows) if packed else rows
            for (name, _, packed), rows in zip(self._leaves, chunk.leaves, strict=True)
        }
        return self._ring.append(values, chunk.num_rows)

    def free_until(self, sequence: int) -> None:
        places = np.arange(self._ring.tail, sequence) % self._ring.size
        for name, _, packed in self._leaves:
            if packed:
                column = self._ring.columns[name]
                self._packed_bytes -= sum(map(sys.getsizeof, column[places]))
                column[places] = None
        self._ring.free_until(sequence)

    def collect(self, wanted: Wanted) -> list[Leaves]:
        return [[self._take(name, leaf, packed, rows) for name, leaf, packed in self._leaves] for rows in wanted]

    def _pack(self, rows: NDArray[Any]) -> NDArray[np.object_]:
        packed = np.empty(len(rows), np.object_)
        for i, row in enumerate(np.ascontiguousarray(rows).reshape(len(rows), -1)):
            packed[i] = self._codec.compress(row, asbytes=True)
        self._packed_bytes += sum(map(sys.getsizeof, packed))
        return packed

    def _take(self, name: str, leaf: ArraySpec, packed: bool, rows: NDArray[np.int64]) -> NDArray[Any]:
        found = self._ring.take(name, rows)
        if not packed:
            return found
        out = np.empty((rows.size, leaf.nbytes), np.uint8)
        for target, row in zip(out, found.ravel(), strict=True):
            target[:] = np.frombuffer(self._codec.decompress(row, leaf.nbytes), np.uint8)
        return out.view(leaf.dtype).reshape(*rows.shape, *leaf.shape)
