"""Ledger: which steps of which chunks were consumed, for a stream where nothing may go before it was.

A chunk may be removed from Redis when all of its steps were consumed, and those of its sender before it too (so that a
replay that reads the stream again finds no gap in what is left of a sender). Of a chunk that has to stay, the *marks*
say which steps were consumed: one bit a step, stored beside the stream.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.replay.store.storage import StoredChunk
from surreal.replay.trajectories.lanes import parse_chunk_id


class Settled(NamedTuple):
    """What there is to tell Redis."""

    gone: list[StoredChunk]  #: to be removed
    marks: list[tuple[StoredChunk, bytes]]  #: to be marked


class _Held:
    """A chunk that is in the store."""

    def __init__(self, chunk: StoredChunk, is_consumed: NDArray[np.bool_]) -> None:
        self.chunk = chunk
        self.begin = chunk.end - chunk.steps
        self.is_consumed = is_consumed
        self.left = len(is_consumed) - int(np.count_nonzero(is_consumed))
        self.is_gone = False


class Ledger:
    """Used by one thread."""

    def __init__(self) -> None:
        self._held: list[_Held] = []  # in the order of their numbers
        self._begins: list[int] = []
        self._senders: dict[str, deque[_Held]] = {}
        self._touched: dict[int, _Held] = {}  # by begin: the chunks to be marked again
        self._checked: set[str] = set()  # senders that may have chunks to be removed

    def __len__(self) -> int:
        return len(self._held)

    def add(self, chunk: StoredChunk, is_consumed: NDArray[np.bool_]) -> None:
        """Take in the newest chunk, of which these steps [chunk.steps] were consumed already."""
        held = _Held(chunk, is_consumed)
        self._held.append(held)
        self._begins.append(held.begin)
        sender = parse_chunk_id(chunk.chunk_id)[0]
        self._senders.setdefault(sender, deque()).append(held)
        if not held.left:
            self._checked.add(sender)

    def consume(self, numbers: NDArray[np.int64]) -> None:
        """Note that these steps were consumed."""
        owners = np.searchsorted(np.array(self._begins), numbers, side="right") - 1
        for owner in np.unique(owners).tolist():
            held = self._held[owner]
            held.is_consumed[numbers[owners == owner] - held.begin] = True
            held.left = len(held.is_consumed) - int(np.count_nonzero(held.is_consumed))
            self._touched[held.begin] = held
            self._checked.add(parse_chunk_id(held.chunk.chunk_id)[0])

    def settle(self) -> Settled:
        """What changed since the last call."""
        gone = []
        for sender in self._checked:
            chunks = self._senders[sender]
            while chunks and not chunks[0].left:
                chunks[0].is_gone = True
                gone.append(chunks.popleft().chunk)
            if not chunks:
                del self._senders[sender]
        touched = [held for _, held in sorted(self._touched.items()) if not held.is_gone]
        marks = [(held.chunk, to_mark(held.is_consumed)) for held in touched]
        self._checked.clear()
        self._touched.clear()
        gone.sort(key=lambda chunk: chunk.end)
        return Settled(gone, marks)

    def free(self) -> StoredChunk | None:
        """Forget the oldest chunks that are gone; returns the last of them."""
        count = 0
        while count < len(self._held) and self._held[count].is_gone:
            count += 1
        if not count:
            return None
        last = self._held[count - 1].chunk
        del self._held[:count], self._begins[:count]
        return last


def to_mark(is_consumed: NDArray[np.bool_]) -> bytes:
    """One bit a step."""
    return np.packbits(is_consumed).tobytes()


def from_mark(mark: bytes | None, steps: int) -> NDArray[np.bool_]:
    """Which steps were consumed; none, if there is no mark or it is not one of so many steps."""
    if mark is None or len(mark) != (steps + 7) // 8:
        return np.zeros(steps, np.bool_)
    return np.unpackbits(np.frombuffer(mark, np.uint8), count=steps).astype(np.bool_)
