"""RemoteChunks: which chunk in Redis holds which observation rows, and which chunks are gone. Used by `RemoteRows`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FIRST_CHUNKS = 256


class RemoteChunks:
    """The live chunks, oldest first: arrays with a gap at both ends, indexed from their beginning."""

    def __init__(self) -> None:
        self.first = np.zeros(_FIRST_CHUNKS, np.int64)  # sequence number of the first row
        self.rows = np.zeros(_FIRST_CHUNKS, np.int64)
        self.shard = np.zeros(_FIRST_CHUNKS, np.int64)
        self.prefix = np.zeros(_FIRST_CHUNKS, np.object_)  # of the command that reads the block
        self.origin = np.zeros(_FIRST_CHUNKS, np.object_)  # (epoch, entry id)
        self.is_gone = np.zeros(_FIRST_CHUNKS, np.bool_)
        self.num_gone = 0
        self._begin = self._end = 0

    @property
    def begin_row(self) -> int:
        return int(self.first[self._begin]) if self._begin < self._end else 1 << 62

    @property
    def gone_until(self) -> int:
        """Row behind the last of the chunks at the beginning that are gone."""
        place = self._begin
        if self.num_gone:
            while place < self._end and self.is_gone[place]:
                place += 1
        return int(self.first[place - 1] + self.rows[place - 1]) if place > self._begin else 0

    def find(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        first = self.first[self._begin : self._end]
        return np.searchsorted(first, rows, side="right") + (self._begin - 1)

    def append(self, first: int, rows: int, shard: int, prefix: bytes, origin: tuple[str, tuple[int, int]]) -> None:
        if self._end == len(self.first):
            self._move()
        place = self._end
        self.first[place], self.rows[place], self.prefix[place], self.is_gone[place] = first, rows, prefix, False
        self.shard[place], self.origin[place] = shard, origin
        self._end += 1

    def free_until(self, sequence: int) -> None:
        while self._begin < self._end and self.first[self._begin] + self.rows[self._begin] <= sequence:
            self.num_gone -= int(self.is_gone[self._begin])
            self._begin += 1

    def mark_gone(self, rows: NDArray[np.int64], shard: int, epoch: str, oldest: tuple[int, int] | None) -> None:
        """Mark the chunks of these rows, and those of their shard that came before its oldest entry."""
        self.is_gone[np.unique(self.find(rows))] = True
        of_shard = np.flatnonzero(self.shard[self._begin : self._end] == shard) + self._begin
        for place in of_shard.tolist():
            chunk_epoch, entry_id = self.origin[place]
            if not epoch:
                break
            if chunk_epoch == epoch and oldest is not None and entry_id >= oldest:
                break
            self.is_gone[place] = True
        self.num_gone = int(np.count_nonzero(self.is_gone[self._begin : self._end]))

    def _move(self) -> None:
        """Move the live to the front of arrays that they fill at most half."""
        live = self._end - self._begin
        size = max(_FIRST_CHUNKS, 2 * live)
        for name in ("first", "rows", "shard", "prefix", "origin", "is_gone"):
            old = getattr(self, name)
            new = np.zeros(size, old.dtype)
            new[:live] = old[self._begin : self._end]
            setattr(self, name, new)
        self._begin, self._end = 0, live
