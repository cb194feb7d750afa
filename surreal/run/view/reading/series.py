"""Rows of numbers that are thinned as they come, so that a curve of any length fits a screen and the memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Rows of a curve: twice what a wide screen shows.
POINTS = 1000
#: Rows that wait to be thinned together; a power of two.
_FRESH = 64


class Series:
    """Rows in the order in which they came, each the mean of `stride` that came: as many as it takes to stay bounded.

    Args:
        width: numbers in a row.
        points: rows that are kept at least, once there were as many, and half of those kept at most; raising it keeps
            finer curves.
    """

    __slots__ = ("_fresh", "_fresh_limit", "_points", "_thinned", "_width", "stride")

    def __init__(self, width: int, points: int = POINTS) -> None:
        self._width = width
        self._points = points
        self._thinned = np.empty((0, width))
        self._fresh = array("d")
        self._fresh_limit = _FRESH * width
        self.stride = 1

    def add(self, row: Sequence[float]) -> None:
        """Take a row."""
        self._fresh.extend(row)
        if len(self._fresh) >= self._fresh_limit:
            self._thinned = self.table()
            while len(self._thinned) >= 2 * self._points:
                self._thinned = _means(self._thinned, 2)
                self.stride *= 2
            self._fresh = array("d")
            self._fresh_limit = max(_FRESH, self.stride) * self._width

    def table(self) -> NDArray[np.float64]:
        """All rows, the last the mean of what has come of it so far: `[rows, width]`."""
        fresh = np.array(self._fresh).reshape(-1, self._width)
        return np.concatenate([self._thinned, _means(fresh, self.stride)])


def _means(rows: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The means of each `size` rows, and of what is left at the end."""
    if size == 1 or not len(rows):
        return rows
    begins = np.arange(0, len(rows), size)
    counts = np.diff(np.append(begins, len(rows)))
    return np.asarray(np.add.reduceat(rows, begins) / counts[:, None])
