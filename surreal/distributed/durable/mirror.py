"""Copy of the rows of a `DurableReplay` in memory, from which batches are drawn."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.durable.packing import Columns, join

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
        """Add the rows of the next entry.

        Raises:
            ValueError: they have other columns, shapes or dtypes than those before.
        """
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
        self._entries.append((_order(entry), rows))

    def forget_before(self, entry: bytes | None) -> None:
        """Forget the entries before this one; None: all."""
        while self._entries and (entry is None or self._entries[0][0] < _order(entry)):
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

        def grow(old: NDArray[np.generic] | None, like: NDArray[np.generic]) -> NDArray[np.generic]:
            new = np.empty((room, *like.shape[1:]), like.dtype)
            if old is not None:
                new[: len(self)] = old[alive]
            return new

        self._columns = {name: grow(self._columns.get(name), column) for name, column in columns.items()}
        versions = np.empty(room, np.int64)
        versions[: len(self)] = self._versions[alive]
        self._versions = versions
        self._begin, self._end = 0, len(self)


def _order(entry: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry.partition(b"-")
    return int(milliseconds), int(number)
