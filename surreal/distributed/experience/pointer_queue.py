"""PointerQueue: chunks from the stream to the replay, downloaded ahead by a thread; and one queue over several shards.

The enqueue thread follows the stream with its own cursor (XREAD), fetches the chunks' observation blocks (unless the
replay leaves observations in Redis), decodes and checks them, and puts them into a bounded queue. The replay's thread
takes them out.

A cursor ahead of the stream would read nothing forever. If Redis was emptied (the shard's epoch changed), the cursor
starts again from zero. If Redis lost only its last entries (a replica without them was promoted), the cursor returns to
the last entry that still exists, so that nothing is read twice.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TypeVar

from surreal.base.errors import CodecError, StoppedError
from surreal.distributed.connection.retry import parse_entry_id
from surreal.distributed.experience.codec import Chunk, Contract, decode, read_head, split
from surreal.distributed.experience.stream import Stream, StreamEntry

logger = logging.getLogger(__name__)

T = TypeVar("T")

_START = b"0-0"
_BLOCK_MS = 200
_OWNER_POLL_S = 0.02
#: Entries that are remembered, more than a replica ever lags; and how many of them are looked up at a time.
_REMEMBERED, _LOOKED_FOR = 4096, 64


@dataclass(eq=False, repr=False)
class PointerQueue:
    """Follows one stream."""

    stream: Stream
    _: KW_ONLY
    max_chunks: int = 32  #: most chunks kept ready, >= 1
    read_count: int = 16  #: stream entries requested at a time, >= 1; their blocks are in memory at once
    stop: threading.Event | None = None
    is_patient: bool = False  #: keep trying until `stop` when Redis does not answer, instead of the client's timeout
    #: called once for each contract (on the enqueue thread): whether to download observations. An exception ends
    #: `enqueue_step`
    needs_blocks: Callable[[Contract], bool] = lambda _: True
    on_ready: Callable[[], object] = lambda: None  #: called (on the enqueue thread) whenever chunks are ready
    #: whether the stream may be read now. Only its owner reads a stream that is consumed, because chunks that another
    #: owner still consumes must not be downloaded
    may_read: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        self.contract: Contract | None = None
        self.epoch = ""
        self.refused_chunks = self.gone_chunks = 0
        self.has_caught_up = threading.Event()
        self._queue: queue.Queue[Chunk] = queue.Queue(self.max_chunks)
        self._stop = self.stop or threading.Event()
        self._timeout_s = math.inf if self.is_patient else None
        self._fetches_blocks = True  # for the last contract
        self._cursor = _START
        self._read_last: deque[StreamEntry] = deque(maxlen=_REMEMBERED)  # without their heads

    def enqueue_step(self, *, waits: bool = True) -> int:
        """Read new chunks, waiting a moment for them, and queue them; return how many. The enqueue thread's body.

        Args:
            waits: whether to wait for new chunks, and while the queue is full. Otherwise, chunks that may not fit stay
                in the stream.

        Raises:
            RedisUnavailableError: Redis refused this process (bad password, wrong version).
            ContractError: the replay cannot work with the stream's contract.
            StoppedError: `stop` was set.
        """
        if not self.may_read():
            if waits and self._stop.wait(_OWNER_POLL_S):
                raise StoppedError("stopped before the stream was owned")
            return 0
        if not waits and self._queue.maxsize - len(self) < self.read_count:
            return 0
        entries = self._retry(lambda: self._read(waits), "read the replay's stream")
        chunks = [chunk for chunk in map(self._decode, *self._with_contents(entries)) if chunk is not None]
        for chunk in chunks:
            self._put(chunk)
        if len(entries) < self.read_count and not self.has_caught_up.is_set():
            self.has_caught_up.set()
            self.on_ready()
        return len(chunks)

    def dequeue(self, timeout_s: float = 0.0) -> Chunk | None:
        """Return the next chunk, in stream order; None if none is ready in time."""
        try:
            return self._queue.get(block=timeout_s > 0, timeout=timeout_s or None)
        except queue.Empty:
            return None

    @property
    def next_id(self) -> tuple[int, int] | None:
        """Entry id of the next chunk, None if none is ready; for the thread that takes chunks out."""
        with self._queue.mutex:
            return parse_entry_id(self._queue.queue[0].entry_id) if self._queue.queue else None

    def __len__(self) -> int:
        return self._queue.qsize()

    def _read(self, waits: bool) -> list[StreamEntry]:
        block_ms = _BLOCK_MS if waits and self.has_caught_up.is_set() else None
        entries = self.stream.read(self._cursor, self.read_count, block_ms)
        if not entries:
            epoch, end = self.stream.end()
            if not self._enter_epoch(epoch) and parse_entry_id(end) < parse_entry_id(self._cursor):
                self._go_back()
        return entries

    def _go_back(self) -> None:
        """Follow the stream from the last entry read that still exists."""
        newest_first, lost = list(reversed(self._read_last)), 0
        while lost < len(newest_first):
            are_there = self.stream.which_exist(newest_first[lost : lost + _LOOKED_FOR])
            lost += are_there.index(True) if any(are_there) else len(are_there)
            if any(are_there):
                break
        self._read_last.clear()
        self._read_last += reversed(newest_first[lost:])
        self._cursor = newest_first[lost].entry_id if lost < len(newest_first) else _START
        logger.warning("Redis lost the last %d chunks that were read: the stream is followed from before them", lost)

    def _with_contents(self, entries: list[StreamEntry]) -> tuple[list[StreamEntry], list[bytes | None]]:
        if not entries:
            return [], []
        for entry in entries:  # the contract decides whether blocks are fetched
            with suppress(CodecError):  # counted when it is decoded
                self._contract_of(entry.head)
                break
        wanted = [(entry.chunk_id, 0 if self._fetches_blocks else _table_bytes(entry.head)) for entry in entries]
        epoch, contents = self._retry(lambda: self.stream.fetch(wanted), "read chunks")
        if self._enter_epoch(epoch):
            return [], []
        self._cursor = entries[-1].entry_id
        self._read_last += [entry._replace(head=b"") for entry in entries]
        return entries, contents

    def _enter_epoch(self, epoch: str) -> bool:
        """Record the shard's epoch; return whether the stream must be read again from its start."""
        before, self.epoch = self.epoch, epoch
        if before in ("", epoch):
            return False
        logger.warning("Redis was emptied (epoch %s is now %s): the stream is followed from its start", before, epoch)
        self._cursor, self.contract = _START, None
        self._read_last.clear()
        return True

    def _decode(self, entry: StreamEntry, content: bytes | None) -> Chunk | None:
        if content is None:
            self.gone_chunks += 1
            return None
        try:
            contract = self._contract_of(entry.head)
            table, block = split(entry.head, content) if self._fetches_blocks else (content, None)
            chunk = decode(contract, entry.head, table, block)
        except CodecError as error:
            self.refused_chunks += 1
            if self.refused_chunks == 1:
                logger.warning("chunk %s was refused (further ones are only counted): %s", entry.chunk_id, error)
            return None
        chunk.entry_id, chunk.chunk_id, chunk.epoch = entry.entry_id, entry.chunk_id, self.epoch
        chunk.shard = self.stream.shard
        # The replay's thread, which is the busier one, needs these for every chunk: compute them on this thread.
        _ = chunk.num_rows, chunk.obs_row, chunk.own, chunk.terminated
        return chunk

    def _contract_of(self, head: bytes) -> Contract:
        wanted = read_head(head).contract_id
        if self.contract is None or self.contract.id != wanted:
            text = self._retry(self.stream.contract, "read the stream's contract")
            if text is None:
                self._retry(self.stream.drop_contract, "drop a spoiled contract")
                raise CodecError("the stream has no contract that can be read")
            self.contract = Contract.from_bytes(text)
            self._fetches_blocks = self.needs_blocks(self.contract)
        return self.contract

    def _retry(self, operation: Callable[[], T], what: str) -> T:
        return self.stream.client.retry(operation, what=what, stop=self._stop, timeout_s=self._timeout_s)

    def _put(self, chunk: Chunk) -> None:
        while True:
            with suppress(queue.Full):
                self._queue.put(chunk, timeout=0.2)
                break
            if self._stop.is_set():
                raise StoppedError("the queue was stopped while it was full")
        self.on_ready()


@dataclass(eq=False, repr=False)
class ShardedPointerQueue:
    """Follows the streams of several shards with one `PointerQueue` each, and gives their chunks in one order.

    Order is defined within a shard only. Until all shards were read to their ends once, chunks come in the order of the
    servers' clocks, so that a replay that is rebuilt evicts the oldest first, whatever their shard. Afterwards, they
    come as they arrive. A shard that does not answer is not waited for.
    """

    streams: Sequence[Stream]
    _: KW_ONLY
    stop: threading.Event
    needs_blocks: Callable[[Contract], bool]  #: as for `PointerQueue`; called on several threads
    on_ready: Callable[[], object]  #: as for `PointerQueue`; called on several threads
    may_read: Callable[[int], bool] = lambda _: True  #: whether the stream of a shard may be read now

    def __post_init__(self) -> None:
        self.queues = [
            PointerQueue(
                stream,
                stop=self.stop,
                is_patient=len(self.streams) > 1,  # with the other shards, the run can continue
                needs_blocks=self.needs_blocks,
                on_ready=self.on_ready,
                may_read=partial(self.may_read, stream.shard),
            )
            for stream in self.streams
        ]
        #: set once all shards that answer were read to their ends
        self.has_caught_up = self.queues[0].has_caught_up if len(self.streams) == 1 else threading.Event()

    def enqueue_step(self, *, waits: bool = True) -> int:
        """Read and queue new chunks of each shard in turn, for a loop without threads; return how many."""
        return sum(queue.enqueue_step(waits=waits) for queue in self.queues)

    def dequeue(self, may_take: Callable[[int], bool] = lambda _: True) -> Chunk | None:
        """Return the next chunk; None if none is ready, or `may_take` says that it cannot be used now."""
        if len(self.queues) == 1:
            queue = self.queues[0]
            return queue.dequeue() if len(queue) and may_take(queue.stream.shard) else None
        waiting, first, first_id = False, None, (0, 0)
        for queue in self.queues:
            has_caught_up = queue.has_caught_up.is_set()  # read first: the chunks in the queue came before that
            next_id = queue.next_id
            if next_id is None or not may_take(queue.stream.shard):
                waiting |= not has_caught_up and not queue.stream.client.is_away
            elif first is None or next_id < first_id:
                first, first_id = queue, next_id
        if not waiting:
            self.has_caught_up.set()
        elif not self.has_caught_up.is_set():
            return None  # a missing chunk may be older
        return first.dequeue() if first is not None else None

    @property
    def refused_chunks(self) -> int:
        return sum(queue.refused_chunks for queue in self.queues)

    @property
    def gone_chunks(self) -> int:
        """Number of chunks that were evicted before they were downloaded."""
        return sum(queue.gone_chunks for queue in self.queues)

    def __len__(self) -> int:
        return sum(map(len, self.queues))


def _table_bytes(head: bytes) -> int:
    """Return the length of the table; 1 for an unreadable head, which will be refused."""
    try:
        return read_head(head).table_bytes or 1
    except CodecError:
        return 1
