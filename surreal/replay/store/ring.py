"""Ring: preallocated columns that are filled at the head and freed at the tail; they grow when they are too small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Ring:
    """Columns of equal length, addressed by sequence number: what has it stands in the slot `number % size`.

    Args:
        shapes: name -> (shape of a row, dtype).
        size: rows allocated at first, >= 1.
    """

    def __init__(self, shapes: Mapping[str, tuple[tuple[int, ...], Any]], size: int) -> None:
        self.size = max(size, 1)
        self.head = 0  # next sequence number
        self.tail = 0  # oldest live one
        self.columns: dict[str, NDArray[Any]] = {
            name: np.empty((self.size, *shape), dtype) for name, (shape, dtype) in shapes.items()
        }

    def __len__(self) -> int:
        return self.head - self.tail

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
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
        """Forget everything before this sequence number."""
        self.tail = sequence

    def take(self, name: str, sequences: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows with these sequence numbers."""
        return self.columns[name].take(sequences % self.size, axis=0)

    def _grow(self, needed: int) -> None:
        size = needed + needed // 4
        live = np.arange(self.tail, self.head)
        old_slots, new_slots = live % self.size, live % size
        for name, column in self.columns.items():
            grown = np.empty((size, *column.shape[1:]), column.dtype)
            grown[new_slots] = column[old_slots]
            self.columns[name] = grown
        self.size = size
