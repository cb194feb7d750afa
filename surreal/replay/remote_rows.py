"""RemoteRows: observations stay in Redis, and a batch's rows are fetched by pointer when it is drawn.

A pointer is (block, row); as a block holds leaf after leaf, a row's bytes have a known place in it. The rows of a batch
are sorted, equal ones fetched once, adjacent ones (an observation and the next, the frames of a stack) as one range,
and all ranges in one round trip. A range that comes back empty was evicted by the stream's owner, or lost: the chunk is
marked, so is everything older than the oldest entry of the stream, and the replay draws again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.distributed.codec import Chunk, Contract
from surreal.distributed.ranges import RangeReader, RangeReply, RangeRequest, bulk, getrange_prefix
from surreal.distributed.stream import Stream
from surreal.replay.observations import Leaves, Observations, Wanted
from surreal.specs import ArraySpec

logger = logging.getLogger(__name__)

_FIRST_CHUNKS = 256


class _Plan(NamedTuple):
    """How the rows of a batch lie in the reply."""

    rows: NDArray[np.int64]  #: [N] wanted rows, rising
    order: NDArray[np.int64]  #: [N] where each of them stands in what was wanted
    range_of: NDArray[np.int64]  #: [N] number of the range that holds the row
    within: NDArray[np.int64]  #: [N] rows of the same range before it
    num_ranges: int  #: ranges of each leaf


class RemoteRows(Observations):
    """Rows fetched from one shard.

    Args:
        contract: what the stream holds; it must not be compressed.
        stream: the shard.
        stop: ends waits for Redis.
    """

    asks_ahead = 1

    def __init__(self, contract: Contract, stream: Stream, stop: threading.Event) -> None:
        super().__init__(contract)
        self._stream = stream
        self._stop = stop
        self._reader = RangeReader(stream.client)
        self._plans: deque[_Plan] = deque()
        self._chunks = _Chunks()
        self._head = 0
        # Where each leaf's rows begin, in bytes per row of the chunk: leaf after leaf. Empty leaves are not fetched.
        self._sizes = [leaf.nbytes for leaf in contract.obs.leaves]
        self._begin_per_row = [sum(self._sizes[:i]) for i in range(len(self._sizes))]
        self._fetched = [i for i, size in enumerate(self._sizes) if size]
        # Texts of the first leaf's offsets, which are the same in every chunk, by row: of its first byte, and of the
        # last byte before it.
        self._first_texts = self._last_texts = np.empty(0, np.object_)

    @property
    def head(self) -> int:
        return self._head

    @property
    def nbytes(self) -> int:
        return 0

    def insert(self, chunk: Chunk) -> int:
        first, rows = self._head, chunk.num_rows
        prefix = getrange_prefix(self._stream.keys.block(chunk.chunk_id))
        self._chunks.append(first, rows, prefix, (chunk.epoch, _parse_id(chunk.entry_id)))
        self._head += rows
        if rows >= len(self._first_texts):
            self._write_texts(2 * rows)
        return first

    def free_until(self, sequence: int) -> None:
        self._chunks.free_until(sequence)

    def ask(self, wanted: Wanted) -> None:
        plan, request = self._plan(wanted)
        self._plans.append(plan)
        self._reader.ask(request)

    def collect(self, wanted: Wanted) -> list[Leaves] | None:
        plan = self._plans[0]
        reply = self._stream.client.retry(self._reader.answer, what="read observations", stop=self._stop)
        self._plans.popleft()
        if reply.is_whole is not None and not reply.is_whole.all():
            self._note_gone(plan, reply.is_whole)
            return None
        found: list[Leaves] = [[] for _ in wanted]
        for i, leaf in enumerate(self.contract.obs.leaves):
            places, begin = self._places(i, plan, reply), 0
            for leaves, rows in zip(found, wanted, strict=True):
                part = places[begin : begin + rows.size].reshape(rows.shape)
                leaves.append(_gather(leaf, self._sizes[i], reply.buffer, part))
                begin += rows.size
        return found

    def forget(self) -> None:
        self._plans.clear()
        self._reader.forget()

    @property
    def has_gone(self) -> bool:
        return self._chunks.num_gone > 0

    def are_gone(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self._chunks.is_gone[self._chunks.find(rows)]

    @property
    def gone_until(self) -> int:
        return self._chunks.gone_until

    def close(self) -> None:
        self.forget()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _plan(self, wanted: Wanted) -> tuple[_Plan, RangeRequest]:
        chunks = self._chunks
        rows = np.concatenate([rows.ravel() for rows in wanted])
        order = rows.argsort()
        rows = rows[order]
        chunk = chunks.find(rows)
        is_start = np.empty(len(rows), np.bool_)
        is_start[0] = True
        np.greater(rows[1:], rows[:-1] + 1, out=is_start[1:])
        is_start[1:] |= chunk[1:] != chunk[:-1]
        starts = is_start.nonzero()[0]
        range_of = is_start.cumsum() - 1
        first, chunk = rows[starts], chunk[starts]
        plan = _Plan(rows, order, range_of, rows - first[range_of], len(starts))

        ends = np.empty_like(starts)  # the last row of each range
        ends[:-1], ends[-1] = starts[1:] - 1, len(rows) - 1
        counts = plan.within[ends] + 1
        first = first - chunks.first[chunk]
        commands = np.empty((len(self._fetched), len(starts), 3), np.object_)
        commands[:, :, 0] = chunks.prefix[chunk]
        lengths = np.empty((len(self._fetched), len(starts)), np.int64)
        for j, i in enumerate(self._fetched):
            np.multiply(counts, self._sizes[i], out=lengths[j])
            if self._begin_per_row[i] == 0:
                commands[j, :, 1] = self._first_texts[first]
                commands[j, :, 2] = self._last_texts[first + counts]
            else:
                begin = chunks.rows[chunk] * self._begin_per_row[i] + first * self._sizes[i]
                commands[j, :, 1] = [bulk(number) for number in begin.tolist()]
                commands[j, :, 2] = [bulk(number) for number in (begin + lengths[j] - 1).tolist()]
        return plan, RangeRequest(b"".join(commands.ravel().tolist()), lengths.ravel())

    def _places(self, i: int, plan: _Plan, reply: RangeReply) -> NDArray[np.int64]:
        """Where the wanted rows of leaf `i` begin in the buffer."""
        places = np.empty(len(plan.rows), np.int64)
        if self._sizes[i]:
            begin = self._fetched.index(i) * plan.num_ranges
            offsets = reply.offsets[begin : begin + plan.num_ranges]
            places[plan.order] = offsets[plan.range_of] + plan.within * self._sizes[i]
        return places

    def _write_texts(self, rows: int) -> None:
        size = self._sizes[self._fetched[0]]
        self._first_texts, self._last_texts = np.empty(rows + 1, np.object_), np.empty(rows + 1, np.object_)
        self._first_texts[:] = [bulk(row * size) for row in range(rows + 1)]
        self._last_texts[:] = [bulk(row * size - 1) for row in range(rows + 1)]

    def _note_gone(self, plan: _Plan, is_whole: NDArray[np.bool_]) -> None:
        """Mark the chunks that were asked for in vain, and all that are older than the stream is now."""
        is_gone = (~is_whole).reshape(-1, plan.num_ranges).sum(axis=0) > 0
        rows = np.unique(plan.rows[is_gone[plan.range_of]])
        self.gone_rows += len(rows)
        epoch, oldest = self._stream.client.retry(self._stream.oldest, what="find the oldest entry", stop=self._stop)
        # Rows of chunks that the replay let go meanwhile need no mark.
        self._chunks.mark_gone(rows[rows >= self._chunks.begin_row], epoch, _parse_id(oldest) if oldest else None)
        logger.debug("%d rows are gone; everything before row %d is", len(rows), self._chunks.gone_until)


class _Chunks:
    """The living chunks, oldest first: arrays with a gap at both ends, indexed from their beginning."""

    def __init__(self) -> None:
        self.first = np.zeros(_FIRST_CHUNKS, np.int64)  # sequence number of the first row
        self.rows = np.zeros(_FIRST_CHUNKS, np.int64)
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
        """Places of the chunks that hold these rows."""
        first = self.first[self._begin : self._end]
        return np.searchsorted(first, rows, side="right") + (self._begin - 1)

    def append(self, first: int, rows: int, prefix: bytes, origin: tuple[str, tuple[int, int]]) -> None:
        if self._end == len(self.first):
            self._move()
        place = self._end
        self.first[place], self.rows[place], self.prefix[place], self.is_gone[place] = first, rows, prefix, False
        self.origin[place] = origin
        self._end += 1

    def free_until(self, sequence: int) -> None:
        while self._begin < self._end and self.first[self._begin] + self.rows[self._begin] <= sequence:
            self.num_gone -= int(self.is_gone[self._begin])
            self._begin += 1

    def mark_gone(self, rows: NDArray[np.int64], epoch: str, oldest: tuple[int, int] | None) -> None:
        self.is_gone[np.unique(self.find(rows))] = True
        for place in range(self._begin, self._end):
            chunk_epoch, entry_id = self.origin[place]
            if chunk_epoch == epoch and oldest is not None and entry_id >= oldest:
                break
            self.is_gone[place] = True
        self.num_gone = int(np.count_nonzero(self.is_gone[self._begin : self._end]))

    def _move(self) -> None:
        """Move the living to the front of arrays that they fill at most half."""
        living = self._end - self._begin
        size = max(_FIRST_CHUNKS, 2 * living)
        for name in ("first", "rows", "prefix", "origin", "is_gone"):
            old = getattr(self, name)
            new = np.zeros(size, old.dtype)
            new[:living] = old[self._begin : self._end]
            setattr(self, name, new)
        self._begin, self._end = 0, living


def _gather(leaf: ArraySpec, size: int, buffer: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[Any]:
    """Copy the rows that begin at some places of a buffer: the one copy between the socket and the batch."""
    if not size:
        return np.empty((*places.shape, *leaf.shape), leaf.dtype)
    every: NDArray[np.uint8] = np.ndarray((len(buffer) - size + 1, size), np.uint8, buffer, 0, (1, 1))
    return every[places].view(leaf.dtype).reshape(*places.shape, *leaf.shape)


def _parse_id(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence or 0)
