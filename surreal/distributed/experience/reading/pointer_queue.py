"""PointerQueue: chunks from the stream to the replay, downloaded ahead by a thread.

The enqueue thread follows the stream with a cursor of its own (XREAD), fetches the chunks' observation blocks (unless
the replay leaves observations in Redis), decodes and checks them, and puts them into a bounded queue. The replay's
thread takes them out.

A cursor ahead of the stream would read nothing forever. When Redis was emptied (the shard's epoch changed) the cursor
starts again from zero. When Redis lost its last entries alone (a replica was promoted that had not got them), it goes
back to the last entry that is still there, so that nothing is read twice.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from surreal.base.errors import CodecError, StoppedError
from surreal.distributed.experience.format.codec import Chunk, Contract, contract_id, decode, split, table_bytes
from surreal.distributed.experience.stream import Entry, Stream

logger = logging.getLogger(__name__)

T = TypeVar("T")

_START = b"0-0"
_BLOCK_MS = 200
_OWNER_POLL_S = 0.02
#: Entries that are remembered, more than a replica is ever behind; and how many of them are looked for at a time.
_REMEMBERED, _LOOKED_FOR = 4096, 64


class PointerQueue:
    """Follows one stream.

    Args:
        stream: the shard to follow.
        max_chunks: chunks kept ready at most, >= 1.
        read_count: stream entries asked for at a time, >= 1; their blocks are in memory at once.
        stop: ends the waits.
        is_patient: keep trying for as long as it takes when Redis does not answer, in place of the client's timeout.
        needs_blocks: asked once for each contract (on the enqueue thread) whether observations are to be downloaded;
            what it raises ends `enqueue_step`.
        on_ready: called (on the enqueue thread) whenever chunks are ready.
        may_read: whether the stream may be read now. One that is consumed is read only by its owner: what another one
            still consumes must not be downloaded before.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        max_chunks: int = 32,
        read_count: int = 16,
        stop: threading.Event | None = None,
        is_patient: bool = False,
        needs_blocks: Callable[[Contract], bool] = lambda _: True,
        on_ready: Callable[[], object] = lambda: None,
        may_read: Callable[[], bool] = lambda: True,
    ) -> None:
        self.stream = stream
        self.contract: Contract | None = None
        self.epoch = ""
        self.refused_chunks = 0
        self.gone_chunks = 0
        self.has_caught_up = threading.Event()
        self._queue: queue.Queue[Chunk] = queue.Queue(max_chunks)
        self._read_count = read_count
        self._stop = stop or threading.Event()
        self._timeout_s = math.inf if is_patient else None
        self._needs_blocks = needs_blocks
        self._fetches_blocks = True  # as the last contract says
        self._on_ready = on_ready
        self._may_read = may_read
        self._cursor = _START
        self._read_last: deque[Entry] = deque(maxlen=_REMEMBERED)  # without their heads
        self._has_warned = False

    def enqueue_step(self, *, waits: bool = True) -> int:
        """Read what is new, waiting a moment for it, and queue it: the body of the enqueue thread.

        Args:
            waits: whether to wait where nothing is new, and while the queue is full; otherwise, what may not fit is
                left in the stream.

        Returns:
            How many chunks were queued.

        Raises:
            RedisUnavailableError: Redis refused us (bad password, wrong version).
            ContractError: the replay cannot work with the stream's contract.
            StoppedError: `stop` was set.
        """
        if not self._may_read():
            if waits and self._stop.wait(_OWNER_POLL_S):
                raise StoppedError("stopped before the stream was owned")
            return 0
        if not waits and self._queue.maxsize - len(self) < self._read_count:
            return 0
        entries = self._retry(lambda: self._read(waits), "read the replay's stream")
        chunks = [chunk for chunk in map(self._decode, *self._with_contents(entries)) if chunk is not None]
        for chunk in chunks:
            self._put(chunk)
        if len(entries) < self._read_count and not self.has_caught_up.is_set():
            self.has_caught_up.set()
            self._on_ready()
        return len(chunks)

    def dequeue(self, timeout_s: float = 0.0) -> Chunk | None:
        """The next chunk, in stream order; None if none is ready in time."""
        try:
            return self._queue.get(block=timeout_s > 0, timeout=timeout_s or None)
        except queue.Empty:
            return None

    @property
    def next_id(self) -> tuple[int, int] | None:
        """Entry id of the chunk that comes next, None if none is ready; for the thread that takes chunks out."""
        with self._queue.mutex:
            return parse_entry_id(self._queue.queue[0].entry_id) if self._queue.queue else None

    def __len__(self) -> int:
        return self._queue.qsize()

    def _read(self, waits: bool) -> list[Entry]:
        block_ms = _BLOCK_MS if waits and self.has_caught_up.is_set() else None
        entries = self.stream.read(self._cursor, self._read_count, block_ms)
        if not entries:
            epoch, end = self.stream.end()
            if not self._enter_epoch(epoch) and parse_entry_id(end) < parse_entry_id(self._cursor):
                self._go_back()
        return entries

    def _go_back(self) -> None:
        """Follow the stream from the last entry that it still has of those that were read."""
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

    def _with_contents(self, entries: list[Entry]) -> tuple[list[Entry], list[bytes | None]]:
        if not entries:
            return [], []
        self._learn_contract(entries)
        wanted = [(entry.chunk_id, 0 if self._fetches_blocks else _table_bytes(entry.head)) for entry in entries]
        epoch, contents = self._retry(lambda: self.stream.fetch(wanted), "read chunks")
        if self._enter_epoch(epoch):
            return [], []
        self._cursor = entries[-1].entry_id
        self._read_last += [entry._replace(head=b"") for entry in entries]
        return entries, contents

    def _learn_contract(self, entries: list[Entry]) -> None:
        """Know the contract before blocks are fetched; what cannot be read is counted when it is decoded."""
        for entry in entries:
            with suppress(CodecError):
                self._contract_of(entry.head)
                return

    def _enter_epoch(self, epoch: str) -> bool:
        """Note the shard's epoch; returns whether the stream must be read again from its start."""
        before, self.epoch = self.epoch, epoch
        if before in ("", epoch):
            return False
        logger.warning("Redis was emptied (epoch %s is now %s): the stream is followed from its start", before, epoch)
        self._cursor, self.contract = _START, None
        self._read_last.clear()
        return True

    def _decode(self, entry: Entry, content: bytes | None) -> Chunk | None:
        if content is None:
            self.gone_chunks += 1
            return None
        try:
            contract = self._contract_of(entry.head)
            if self._fetches_blocks:
                chunk = decode(contract, entry.head, *split(entry.head, content))
            else:
                chunk = decode(contract, entry.head, content, None)
        except CodecError as error:
            self.refused_chunks += 1
            if not self._has_warned:
                self._has_warned = True
                logger.warning("chunk %s was refused (further ones are only counted): %s", entry.chunk_id, error)
            return None
        chunk.entry_id, chunk.chunk_id, chunk.epoch = entry.entry_id, entry.chunk_id, self.epoch
        chunk.shard = self.stream.shard
        return chunk

    def _contract_of(self, head: bytes) -> Contract:
        wanted = contract_id(head)
        if self.contract is None or self.contract.id != wanted:
            text = self._retry(self.stream.contract, "read the stream's contract")
            if text is None:
                self._retry(self.stream.drop_contract, "drop a spoiled contract")
                raise CodecError("the stream has no contract that can be read")
            self.contract = Contract.from_bytes(text)
            self._fetches_blocks = self._needs_blocks(self.contract)
        return self.contract

    def _retry(self, operation: Callable[[], T], what: str) -> T:
        return self.stream.client.retry(operation, what=what, stop=self._stop, timeout_s=self._timeout_s)

    def _put(self, chunk: Chunk) -> None:
        while True:
            try:
                self._queue.put(chunk, timeout=0.2)
                break
            except queue.Full:
                if self._stop.is_set():
                    raise StoppedError("the queue was stopped while it was full") from None
        self._on_ready()


def _table_bytes(head: bytes) -> int:
    """Length of the table; of a head that cannot be read, 1: it will be refused."""
    try:
        return table_bytes(head) or 1
    except CodecError:
        return 1


def parse_entry_id(entry_id: bytes) -> tuple[int, int]:
    """The server's clock in ms when an entry was stored, and its number in that millisecond."""
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number or 0)
