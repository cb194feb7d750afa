"""EpisodeIndex: finds, for any step of a store, a later step of the same episode.

Steps of an episode are spread over chunks, between those of other environments. When an episode ends, the numbers of
its steps are written next to each other into one ring. Each step has its place there, and that of the episode's end, so
that a draw takes two look-ups, however many steps lie between.

An open episode is written whenever its length passes a power of two, which costs each step a constant on average. One
of more than `BLOCK_STEPS` steps counts as several of that length, so that it may be longer than the replay, or endless.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal.replay.store.rows import Ring
from surreal.replay.trajectories.lanes import LaneKey, Lanes, Run

BLOCK_STEPS = 1024
_FORGET_INTERVAL = 256


class EpisodeIndex:
    """The steps that are alive, by episode. Used by one thread.

    Args:
        size: steps expected to be alive, a first size.
    """

    def __init__(self, size: int) -> None:
        self._steps = Ring({"base": ((), np.int64), "place": ((), np.int64), "end": ((), np.int64)}, size)
        self._members = Ring({"number": ((), np.int64)}, size)
        self._lanes = Lanes()
        self._open: dict[LaneKey, NDArray[np.int64]] = {}
        self._frees = 0

    @property
    def nbytes(self) -> int:
        return self._steps.nbytes + self._members.nbytes

    def add(
        self,
        chunk_id: str,
        first: int,
        env_ids: NDArray[np.int32],
        step: NDArray[np.int64],
        has_ended: NDArray[np.bool_],
    ) -> None:
        """Take in the steps that a chunk owns; arguments as for `Lanes.add`."""
        # From now on, nothing is written before the ring's head, so `base` bounds the places of these and later steps.
        base, none = np.full(len(step), self._members.head), np.zeros(len(step), np.int64)
        self._steps.append({"base": base, "place": none, "end": none}, len(step))
        for run in self._lanes.add(chunk_id, first, env_ids, step, has_ended):
            part = slice(run.begin - first, run.end - first)
            self._add_run(run, step[part] % BLOCK_STEPS, has_ended[part])

    def free_until(self, number: int) -> None:
        self._steps.free_until(number)
        base = int(self._steps.columns["base"][number % self._steps.size]) if len(self._steps) else self._members.head
        self._members.free_until(base)
        self._frees += 1
        if self._frees % _FORGET_INTERVAL == 0:
            self._lanes.forget(number)
            self._open = {lane: block for lane, block in self._open.items() if block[-1] >= number}

    def draw_later(self, number: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw one of the steps of the same episode from each step on, itself included, uniformly.

        Args:
            number: numbers of steps that are alive, of any shape.
            rng: source of the draws.

        Returns:
            Numbers of steps, in the same shape; those of steps that are too new to be in the index are unchanged.
        """
        place, end = self._steps.take("place", number), self._steps.take("end", number)
        ahead = (rng.random(number.shape) * (end - place)).astype(np.int64)
        return np.where(end > place, self._members.take("number", place + ahead), number)

    def _add_run(self, run: Run, step: NDArray[np.int64], has_ended: NDArray[np.bool_]) -> None:
        block = self._open.pop(run.lane, np.empty(0, np.int64))
        if run.previous < 0 and len(block):  # no step that follows belongs to it
            self._write(block)
            block = block[:0]
        is_last = has_ended | (step == BLOCK_STEPS - 1)
        begin = 0
        for end in (np.flatnonzero(is_last) + 1).tolist():
            self._write(np.concatenate((block, np.arange(run.begin + begin, run.begin + end))))
            block, begin = block[:0], end
        if begin < len(step):
            self._open[run.lane] = block = np.concatenate((block, np.arange(run.begin + begin, run.end)))
            if int(step[begin]).bit_length() != int(step[-1] + 1).bit_length():
                self._write(block)

    def _write(self, block: NDArray[np.int64]) -> None:
        alive = block[np.searchsorted(block, self._steps.tail) :]
        first = self._members.append({"number": alive}, len(alive))
        slots = alive % self._steps.size
        self._steps.columns["place"][slots] = np.arange(first, first + len(alive))
        self._steps.columns["end"][slots] = first + len(alive)
