"""Bookkeeping of a replay that consumes its stream: `Ledger`, `Handed` and `Fullness`.

A chunk may be removed from Redis when all of its steps were consumed, and so were all earlier chunks of its sender.
Otherwise, a replay that reads the stream again would find a gap in that sender's steps. If a chunk has to stay, its
*mark* records the steps that were consumed, one bit per step, next to the stream.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.replay.store.storage import StoredChunk
from surreal.replay.trajectories.lanes import parse_chunk_id

logger = logging.getLogger(__name__)

#: Most senders to remember: those that sent last.
_MOST_SENDERS = 1024
#: Time that the stream may be full without a complete batch before open trajectories are ended, and before a warning
#: reports that nothing was committed, s.
_FULL_TIMEOUT_S = 2.0
_COMMIT_TIMEOUT_S = 30.0


class Settled(NamedTuple):
    """Changes that Redis does not know of."""

    gone: list[StoredChunk]  #: chunks to remove
    marks: list[tuple[StoredChunk, bytes]]  #: chunks to mark


class _Held:
    """A chunk that is in the store."""

    def __init__(self, chunk: StoredChunk, is_consumed: NDArray[np.bool_]) -> None:
        self.chunk = chunk
        self.begin = chunk.end - chunk.steps
        self.is_consumed = is_consumed
        self.left = len(is_consumed) - int(np.count_nonzero(is_consumed))
        self.is_gone = False


class Ledger:
    """The consumed steps of each chunk. Used by one thread."""

    def __init__(self) -> None:
        self._held: list[_Held] = []  # in the order of their numbers
        self._begins: list[int] = []
        self._senders: dict[str, deque[_Held]] = {}
        self._touched: dict[int, _Held] = {}  # by begin: the chunks to be marked again
        self._checked: set[str] = set()  # senders that may have chunks to be removed

    def __len__(self) -> int:
        return len(self._held)

    def add(self, chunk: StoredChunk, is_consumed: NDArray[np.bool_]) -> None:
        """Add the newest chunk; `is_consumed` [chunk.steps] marks the steps that were consumed before."""
        held = _Held(chunk, is_consumed)
        self._held.append(held)
        self._begins.append(held.begin)
        sender = parse_chunk_id(chunk.chunk_id)[0]
        self._senders.setdefault(sender, deque()).append(held)
        if not held.left:
            self._checked.add(sender)

    def consume(self, numbers: NDArray[np.int64]) -> None:
        owners = np.searchsorted(np.array(self._begins), numbers, side="right") - 1
        for owner in np.unique(owners).tolist():
            held = self._held[owner]
            held.is_consumed[numbers[owners == owner] - held.begin] = True
            held.left = len(held.is_consumed) - int(np.count_nonzero(held.is_consumed))
            self._touched[held.begin] = held
            self._checked.add(parse_chunk_id(held.chunk.chunk_id)[0])

    def settle(self) -> Settled:
        gone = []
        for sender in self._checked:
            chunks = self._senders[sender]
            while chunks and not chunks[0].left:
                chunks[0].is_gone = True
                gone.append(chunks.popleft().chunk)
            if not chunks:
                del self._senders[sender]
        touched = [held for _, held in sorted(self._touched.items()) if not held.is_gone]
        marks = [(held.chunk, np.packbits(held.is_consumed).tobytes()) for held in touched]  # one bit per step
        self._checked.clear()
        self._touched.clear()
        gone.sort(key=lambda chunk: chunk.end)
        return Settled(gone, marks)

    def free(self) -> StoredChunk | None:
        """Forget the oldest chunks that are gone; return the last of them."""
        count = 0
        while count < len(self._held) and self._held[count].is_gone:
            count += 1
        if not count:
            return None
        last = self._held[count - 1].chunk
        del self._held[:count], self._begins[:count]
        return last


def from_mark(mark: bytes | None, steps: int) -> NDArray[np.bool_]:
    """Unpack the steps that were consumed; none if there is no mark, or if it has another number of steps."""
    if mark is None or len(mark) != (steps + 7) // 8:
        return np.zeros(steps, np.bool_)
    return np.unpackbits(np.frombuffer(mark, np.uint8), count=steps).astype(np.bool_)


class Handed:
    """The last chunk of each sender whose steps were all returned, so that its agent knows when to act again.

    An agent that acts in rounds sends its trajectories, and waits until parameters have learned from them. It knows the
    number of its last chunk. The learner publishes, with the parameters, the number `through` which all trajectories of
    the sender were handed out. Used by the replay's thread.
    """

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def note(self, chunk_id: str) -> None:
        sender, sequence = parse_chunk_id(chunk_id)
        self._newest[sender] = max(sequence, self._newest.pop(sender, -1))  # moves it to the end
        if len(self._newest) > _MOST_SENDERS:
            del self._newest[next(iter(self._newest))]

    def through(self, waiting: Iterable[str]) -> dict[str, int]:
        """Return, for each sender, the number of its last chunk of which no complete trajectory waits. `waiting` are
        the ids of the chunks that completed the trajectories which will be handed out next; none if they are too few
        for a batch. Otherwise, agents would wait for each other.
        """
        found = dict(self._newest)
        for chunk_id in waiting:
            sender, sequence = parse_chunk_id(chunk_id)
            if sender in found:
                found[sender] = min(found[sender], sequence - 1)
        return found


class Fullness:
    """The time that agents have waited for room while a batch waits for their steps; for the replay's thread."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._has_warned = False

    def lasts(self, is_full: bool, *, uncommitted: int) -> bool:
        """Whether the stream has been full, without a complete batch, for so long that only the replay itself can end
        it.

        Committing the `uncommitted` batches would free space; a warning reports them when they are late.
        """
        now_s = time.monotonic()
        if not is_full:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif not uncommitted:
            return now_s - self._since_s >= _FULL_TIMEOUT_S
        elif now_s - self._since_s >= _COMMIT_TIMEOUT_S and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "the stream is full, and %d batches were handed out and not committed: call commit() after each"
                " broadcast, broadcast more often, or raise max_bytes", uncommitted,
            )  # fmt: skip
        return False
