"""Cutting lanes into trajectories of T rows, each step in exactly one, in order.

A trajectory begins with the step behind the last one's. An episode's end takes a row of its own (its final
observation), unless it would be the first row of a trajectory. A lane that breaks off leaves one that is filled up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.replay.trajectories.lanes import LaneKey, Run

_UNKNOWN = np.iinfo(np.int64).max


class Cut(NamedTuple):
    """One trajectory."""

    start: int  #: number of its first step
    oldest_version: int  #: of its steps' parameter versions; -1 if none is known
    is_filled: bool  #: whether it has fewer than T rows of its own


class _Piece:
    """The open trajectory of a lane."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.rows = 0
        self.oldest = _UNKNOWN
        self.since_s = 0.0

    def cut(self, *, is_filled: bool) -> Cut:
        return Cut(self.start, -1 if self.oldest == _UNKNOWN else self.oldest, is_filled)


class Cutter:
    """Keeps the open trajectory of every lane.

    Args:
        length: T, rows of a trajectory, >= 1.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._pieces: dict[LaneKey, _Piece] = {}

    def __len__(self) -> int:
        return len(self._pieces)

    def add(
        self, run: Run, has_ended: NDArray[np.bool_], version: NDArray[np.integer], *, now_s: float = 0.0
    ) -> list[Cut]:
        """Take in a run; returns the trajectories that are complete now.

        Args:
            run: of a lane.
            has_ended: [n] whether an episode ended with each of its steps.
            version: [n] parameter version that acted, -1 if unknown.
            now_s: when it came.
        """
        piece = self._pieces.pop(run.lane, None)
        cuts = []
        if piece is not None and run.previous < 0:
            cuts.append(piece.cut(is_filled=True))
            piece = None
        # Rows of the run: each step has one, and one more if it ended its episode.
        behind = np.cumsum(1 + has_ended.astype(np.int64))
        row = behind - 1 - has_ended
        known = np.where(version < 0, _UNKNOWN, version.astype(np.int64))
        begin, rows = 0, 0  # of what is left: step, row
        while begin < len(row):
            piece = piece or _Piece(run.begin + begin)
            last_row = rows + self.length - piece.rows - 1
            last = int(np.searchsorted(row, last_row, side="right")) - 1
            piece.oldest = min(piece.oldest, int(known[begin : last + 1].min(initial=_UNKNOWN)))
            if behind[-1] <= last_row:
                piece.rows += int(behind[-1]) - rows
                piece.since_s = now_s
                self._pieces[run.lane] = piece
                break
            cuts.append(piece.cut(is_filled=False))
            piece, begin = None, last + 1
            rows = int(behind[last])
        return cuts

    def break_off(self, before_s: float) -> list[tuple[LaneKey, Cut]]:
        """Give up the lanes of which nothing came since then; returns what they leave, oldest first."""
        idle = [lane for lane, piece in self._pieces.items() if piece.since_s < before_s]
        idle.sort(key=lambda lane: self._pieces[lane].start)
        return [(lane, self._pieces.pop(lane).cut(is_filled=True)) for lane in idle]
