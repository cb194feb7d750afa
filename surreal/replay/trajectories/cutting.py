"""Cutting lanes into trajectories of T steps, each step in exactly one, in order.

A trajectory begins with the step behind the last one's, and ends of episodes inside it do not shorten it: it has the
T steps of its environment that one round of an agent consists of. A lane that breaks off leaves one that is filled up.
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
    steps: int  #: T; fewer where its lane broke off
    chunk_id: str = ""  #: id of the chunk that completed it


class _Piece:
    """The open trajectory of a lane."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.steps = 0
        self.oldest = _UNKNOWN
        self.newest = -1
        self.since_s = 0.0

    def cut(self) -> Cut:
        return Cut(self.start, -1 if self.oldest == _UNKNOWN else self.oldest, self.steps)


class Cutter:
    """Keeps the open trajectory of every lane.

    Args:
        length: T, steps of a trajectory, >= 1.
        in_rounds: whether agents act with one version for T steps of each environment. A trajectory in which the
            version changes has lost steps; it is filled up, and the next one begins with the new version.
    """

    def __init__(self, length: int, *, in_rounds: bool = False) -> None:
        self.length = length
        self._in_rounds = in_rounds
        self._pieces: dict[LaneKey, _Piece] = {}

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, run: Run, version: NDArray[np.integer], *, now_s: float = 0.0) -> list[Cut]:
        """Take in a run; returns the trajectories that are complete now.

        Args:
            run: of a lane.
            version: [n] parameter version that acted in each of its steps, -1 if unknown.
            now_s: when it came.
        """
        piece = self._pieces.pop(run.lane, None)
        cuts = []
        if piece is not None and run.previous < 0:
            cuts.append(piece.cut())
            piece = None
        known = np.where(version < 0, _UNKNOWN, version.astype(np.int64))
        changes = np.flatnonzero(version[1:] != version[:-1]) + 1 if self._in_rounds else np.empty(0, np.int64)
        begin, count = 0, len(version)
        while begin < count:
            if self._in_rounds and piece is not None and piece.newest != version[begin]:
                cuts.append(piece.cut())
                piece = None
            piece = piece or _Piece(run.begin + begin)
            end = min(count, begin + self.length - piece.steps)
            if (place := int(np.searchsorted(changes, begin, side="right"))) < len(changes):
                end = min(end, int(changes[place]))
            piece.oldest = min(piece.oldest, int(known[begin:end].min()))
            piece.newest = int(version[end - 1])
            piece.steps += end - begin
            begin = end
            if piece.steps == self.length:
                cuts.append(piece.cut())
                piece = None
        if piece is not None:
            piece.since_s = now_s
            self._pieces[run.lane] = piece
        return cuts

    def break_off(self, before_s: float) -> list[tuple[LaneKey, Cut]]:
        """Give up the lanes of which nothing came since then; returns what they leave, oldest first."""
        idle = [lane for lane, piece in self._pieces.items() if piece.since_s < before_s]
        idle.sort(key=lambda lane: self._pieces[lane].start)
        return [(lane, self._pieces.pop(lane).cut()) for lane in idle]
