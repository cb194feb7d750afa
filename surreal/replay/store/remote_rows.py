"""RemoteRows: observations stay in Redis, and a batch's rows are fetched by pointer when it is sampled.

A pointer is (block, row); as a block holds leaf after leaf, a row's bytes have a known place in it. The rows of a batch
are sorted, equal ones fetched once, adjacent ones (an observation and the next, the frames of a stack) as one range,
and all ranges of a shard in one round trip. A range that comes back empty was evicted by the stream's owner, or lost:
the chunk is marked, so is everything older than the oldest entry of the stream, and the replay draws again. Of several
shards, one that does not answer is passed over: what is on it counts as gone until it is back.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec
from surreal.distributed.connection.retry import parse_entry_id
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.range_reader import RangeReader, RangeReply, RangeRequest, bulk, getrange_prefix
from surreal.distributed.experience.stream import Stream
from surreal.replay.store.remote_chunks import RemoteChunks
from surreal.replay.store.rows import Leaves, Observations

logger = logging.getLogger(__name__)


class _Plan(NamedTuple):
    """The places of a batch's rows in the reply of one shard."""

    shard: int  #: place of the shard among those that are followed
    num_given_up: int  #: how often all that its reader was asked for had been given up by then
    rows: NDArray[np.int64]  #: [N] wanted rows, rising
    order: NDArray[np.int64]  #: [N] where each of them stands in what was wanted
    range_of: NDArray[np.int64]  #: [N] number of the range that holds the row
    within: NDArray[np.int64]  #: [N] rows of the same range before it
    num_ranges: int  #: ranges of each leaf


class RemoteRows(Observations):
    """Rows fetched from the shards that have them, whose contract must not be compressed."""

    asks_ahead = 1

    def __init__(self, contract: Contract, streams: Sequence[Stream], stop: threading.Event) -> None:
        super().__init__(contract)
        self._streams = streams
        self._places_of = {stream.shard: place for place, stream in enumerate(streams)}
        self._stop = stop
        self._readers = [RangeReader(stream.client) for stream in streams]
        self._num_given_up = [0] * len(streams)
        self._plans: deque[list[_Plan]] = deque()
        self._chunks = RemoteChunks()
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
        shard = self._places_of[chunk.shard]
        prefix = getrange_prefix(self._streams[shard].keys.block(chunk.chunk_id))
        self._chunks.append(first, rows, shard, prefix, (chunk.epoch, parse_entry_id(chunk.entry_id)))
        self._head += rows
        if rows >= len(self._first_texts):
            self._write_texts(2 * rows)
        return first

    def free_until(self, sequence: int) -> None:
        self._chunks.free_until(sequence)

    def ask(self, rows: NDArray[np.int64]) -> None:
        rows = rows.ravel()
        parts: list[tuple[int, NDArray[np.int64] | None]] = [(0, None)]
        if len(self._streams) > 1:
            shards = self._chunks.shard[self._chunks.find(rows)]
            parts = [(shard, np.flatnonzero(shards == shard)) for shard in np.unique(shards).tolist()]
        plans = []
        for shard, part in parts:
            plan, request = self._plan(shard, rows, part)
            plans.append(plan)
            self._readers[shard].ask(request)
        self._plans.append(plans)

    def collect(self, rows: NDArray[np.int64]) -> Leaves | None:
        plans = self._plans[0]
        replies = [self._answer(plan) for plan in plans]
        self._plans.popleft()
        is_whole = True
        for plan, reply in zip(plans, replies, strict=True):
            if reply is None:
                is_whole = False
            elif reply.is_whole is not None and not reply.is_whole.all():
                self._note_gone(plan, reply.is_whole)
                is_whole = False
        if not is_whole:
            return None
        answered = [(plan, reply) for plan, reply in zip(plans, replies, strict=True) if reply is not None]
        return [self._gather(i, leaf, answered, rows.shape) for i, leaf in enumerate(self.contract.obs.leaves)]

    def forget(self) -> None:
        self._plans.clear()
        for reader in self._readers:
            reader.forget()

    @property
    def has_gone(self) -> bool:
        return self._chunks.num_gone > 0 or (len(self._streams) > 1 and any(self._are_away()))

    def are_gone(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        chunks = self._chunks.find(rows)
        are_gone = self._chunks.is_gone[chunks]
        if len(self._streams) > 1:
            are_gone |= np.array(self._are_away())[self._chunks.shard[chunks]]
        return are_gone

    @property
    def gone_until(self) -> int:
        return self._chunks.gone_until

    def close(self) -> None:
        self.forget()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _are_away(self) -> list[bool]:
        return [stream.client.is_away for stream in self._streams]

    def _answer(self, plan: _Plan) -> RangeReply | None:
        """Get a shard's answer; None if there is none, or if the request was given up before."""
        client, reader = self._streams[plan.shard].client, self._readers[plan.shard]
        if len(self._streams) == 1:
            return client.retry(reader.answer, what="read observations", stop=self._stop)
        if plan.num_given_up != self._num_given_up[plan.shard]:
            return None
        reply = None if client.is_away else client.attempt(reader.answer, what="read observations")
        if reply is None:
            reader.forget()
            self._num_given_up[plan.shard] += 1
        return reply

    def _gather(
        self, i: int, leaf: ArraySpec, answered: list[tuple[_Plan, RangeReply]], shape: tuple[int, ...]
    ) -> NDArray[Any]:
        """Copy the rows of leaf `i` out of the replies, [*shape, *leaf_shape]."""
        if len(answered) == 1:
            plan, reply = answered[0]
            places = np.empty(len(plan.rows), np.int64)
            places[plan.order] = self._places(i, plan, reply)
            return _gather(leaf, self._sizes[i], reply.buffer, places.reshape(shape))
        rows = np.empty((math.prod(shape), *leaf.shape), leaf.dtype)
        for plan, reply in answered:
            rows[plan.order] = _gather(leaf, self._sizes[i], reply.buffer, self._places(i, plan, reply))
        return rows.reshape(*shape, *leaf.shape)

    def _plan(self, shard: int, rows: NDArray[np.int64], part: NDArray[np.int64] | None) -> tuple[_Plan, RangeRequest]:
        """Plan how to get a part of the wanted rows, all on one shard; None: all of them."""
        chunks = self._chunks
        order = rows.argsort() if part is None else part[rows[part].argsort()]
        rows = rows[order]
        chunk = chunks.find(rows)
        is_start = np.empty(len(rows), np.bool_)
        is_start[0] = True
        np.greater(rows[1:], rows[:-1] + 1, out=is_start[1:])
        is_start[1:] |= chunk[1:] != chunk[:-1]
        starts = is_start.nonzero()[0]
        range_of = is_start.cumsum() - 1
        first, chunk = rows[starts], chunk[starts]
        plan = _Plan(shard, self._num_given_up[shard], rows, order, range_of, rows - first[range_of], len(starts))

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
        """Offsets in the buffer at which the plan's rows of leaf `i` begin."""
        if not self._sizes[i]:
            return plan.rows
        begin = self._fetched.index(i) * plan.num_ranges
        offsets = reply.offsets[begin : begin + plan.num_ranges]
        return offsets[plan.range_of] + plan.within * self._sizes[i]

    def _write_texts(self, rows: int) -> None:
        size = self._sizes[self._fetched[0]]
        self._first_texts, self._last_texts = np.empty(rows + 1, np.object_), np.empty(rows + 1, np.object_)
        self._first_texts[:] = [bulk(row * size) for row in range(rows + 1)]
        self._last_texts[:] = [bulk(row * size - 1) for row in range(rows + 1)]

    def _note_gone(self, plan: _Plan, is_whole: NDArray[np.bool_]) -> None:
        """Mark the chunks that did not answer, and all that are older than the stream is now."""
        is_gone = (~is_whole).reshape(-1, plan.num_ranges).sum(axis=0) > 0
        rows = np.unique(plan.rows[is_gone[plan.range_of]])
        self.gone_rows += len(rows)
        # Rows of chunks that the replay let go meanwhile need no mark.
        rows = rows[rows >= self._chunks.begin_row]
        self._chunks.mark_gone(rows, plan.shard, *self._oldest(self._streams[plan.shard]))
        logger.debug("%d rows are gone; everything before row %d is", len(rows), self._chunks.gone_until)

    def _oldest(self, stream: Stream) -> tuple[str, tuple[int, int] | None]:
        """A shard's epoch and the id of its oldest entry, None if it has none; ("", (0, 0)) if it does not answer."""
        what = "find the oldest entry"
        if len(self._streams) == 1:
            epoch, oldest = stream.client.retry(stream.oldest, what=what, stop=self._stop)
        else:
            answer = stream.client.attempt(stream.oldest, what=what)
            if answer is None:
                return "", (0, 0)
            epoch, oldest = answer
        return epoch, parse_entry_id(oldest) if oldest else None


def _gather(leaf: ArraySpec, size: int, buffer: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[Any]:
    """Copy the rows that begin at some places of a buffer: the one copy between the socket and the batch."""
    if not size:
        return np.empty((*places.shape, *leaf.shape), leaf.dtype)
    every: NDArray[np.uint8] = np.ndarray((len(buffer) - size + 1, size), np.uint8, buffer, 0, (1, 1))
    return every[places].view(leaf.dtype).reshape(*places.shape, *leaf.shape)
