"""The reader of a `DurableReplay`: takes rows that no other reader has, and commits them."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray

from surreal.base.errors import ContractError, LeaseError
from surreal.distributed.durable.packing import Columns, join, unpack
from surreal.distributed.durable.server import GROUP, DurableServer, read_pairs


class Taken(NamedTuple):
    """The part of an entry that a batch takes."""

    entry: bytes  #: id in the stream
    begin: int  #: rows that earlier batches took
    end: int  #: rows that are taken after this batch
    rows: int  #: rows of the entry


class DurableBatch(Mapping[str, NDArray[Any]]):
    """Columns by name, as they were put; sequences are arrays of objects [B].

    As a context manager, it is committed at the end of the block; an exception releases it instead.
    """

    def __init__(
        self,
        columns: Columns,
        taken: list[Taken],
        *,
        stale_rows: int,
        version: int,
        commit: Callable[[DurableBatch, bytes | None], None],
        release: Callable[[DurableBatch], None],
    ) -> None:
        self._columns = columns
        self._commit, self._release = commit, release
        self.is_committed = False  #: whether the rows are gone from the replay
        self.taken = taken  #: the entries that the rows come from
        #: rows that were passed over because their version was too old; they are removed with these
        self.stale_rows = stale_rows
        self.version = version  #: the oldest version of these rows

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        return len(next(iter(self._columns.values())))

    def commit(self, state: bytes | None = None) -> None:
        """Remove the rows from the replay, and store `state` as the reader's, in one transaction.

        A reader that ends before this call gets the rows again; after it, no reader does. Repeating it changes nothing.

        Args:
            state: for example the path of the checkpoint that has learned from these rows; None keeps the last one.

        Raises:
            LeaseError: the reader was away for longer than its lease, and another one took the rows; nothing changed.
            ContractError: an earlier batch of this reader is not committed, or this one was released.
            RedisUnavailableError: Redis does not answer.
        """
        if not self.is_committed:
            self._commit(self, state)
            self.is_committed = True

    def release(self) -> None:
        """Return the rows: this reader's next `consume` takes them again, or another reader after `lease_s`.

        Batches that this reader took later are released, too. A committed batch stays committed.
        """
        if not self.is_committed:
            self._release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.release()


#: Entries that are read at once, and the longest wait of the server for a new one, ms.
_COUNT, _BLOCK_MS = 16, 200


class DurableReader:
    """One consumer of the stream's group, which takes over entries older than `lease_s`. Used by one thread."""

    def __init__(self, server: DurableServer, name: str, lease_s: float) -> None:
        self._server, self.name, self._lease_s = server, name, lease_s
        self._life, self._batches = uuid.uuid4().hex, 0
        self._entries: deque[tuple[bytes, int, int, int, Columns]] = deque()  # id, used, rows, version, columns
        self._open: deque[DurableBatch] = deque()
        self._claims_from = b"0"
        self._resumes_from = b"0"  # id after which this reader's own entries are read; b"" once they were

    def take(self, rows: int, min_version: int, timeout_s: float | None) -> DurableBatch | None:
        """Take the oldest rows that no other reader has; see `DurableReplay.consume`."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            fresh = sum(count - used for _, used, count, version, _ in self._entries if version >= min_version)
            if fresh >= rows:
                return self._make_batch(rows, min_version)
            if not self._fetch():
                self._drop_stale(min_version)
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    return None

    def _drop_stale(self, min_version: int) -> None:
        """Remove the rows in front that are too old: writers may wait for their room."""
        taken = []
        while self._entries and self._entries[0][3] < min_version and not self._open:
            entry, used, count, *_ = self._entries.popleft()
            taken.append(Taken(entry, used, count, count))
        if taken:
            stale = sum(each.end - each.begin for each in taken)
            self._open_batch({}, taken, stale, 0).commit()

    def _make_batch(self, rows: int, min_version: int) -> DurableBatch:
        parts, taken, stale, oldest = [], [], 0, None
        while rows:
            entry, used, count, version, columns = self._entries.popleft()
            end = count
            if version < min_version:
                stale += count - used
            else:
                end = min(count, used + rows)
                parts.append({name: column[used:end] for name, column in columns.items()})
                rows -= end - used
                oldest = version if oldest is None else min(oldest, version)
                if end < count:
                    self._entries.appendleft((entry, end, count, version, columns))
            taken.append(Taken(entry, used, end, count))
        return self._open_batch(join(parts), taken, stale, oldest or 0)

    def _open_batch(self, columns: Columns, taken: list[Taken], stale: int, version: int) -> DurableBatch:
        batch = DurableBatch(
            columns, taken, stale_rows=stale, version=version, commit=self._commit, release=self._release
        )
        self._open.append(batch)
        return batch

    def _is_open(self, batch: DurableBatch) -> bool:
        return any(each is batch for each in self._open)

    def _release(self, batch: DurableBatch) -> None:
        if self._is_open(batch):
            while self._open.pop() is not batch:
                pass
            self._read_again()

    def _read_again(self) -> None:
        """Forget what was read but not taken; what this reader still has is read again."""
        self._entries.clear()
        self._resumes_from = b"0"

    def _commit(self, batch: DurableBatch, state: bytes | None) -> None:
        if not self._is_open(batch):
            raise ContractError("the rows of this batch were given back, and may be in another one; drop it")
        if self._open[0] is not batch:
            raise ContractError("batches are committed in the order in which they were taken; commit the one before")
        number = f"{self._life}-{self._batches}"
        arguments: list[Any] = [GROUP, self.name, number, int(state is not None), state or b"", batch.stale_rows]
        arguments.append(len(batch.taken))
        for each in batch.taken:
            arguments += each
        arguments += sorted(self._held() - {each.entry for each in batch.taken})
        answer = self._server.run_script("durable_commit", arguments, "commit a batch")
        if answer != b"ok":
            self._open.clear()
            self._read_again()
            problem = f"reader {self.name} kept rows for longer than another reader's lease_s, which took them"
            raise LeaseError(f"{problem}; nothing was committed. Raise lease_s in all readers, or commit more often")
        self._batches += 1
        self._open.popleft()

    def _fetch(self) -> bool:
        """Read more entries: first those that this reader had before it was started again; return if there were any."""

        def read() -> list[tuple[bytes, dict[bytes, bytes]]]:
            arguments = ("GROUP", GROUP, self.name, "COUNT", _COUNT)
            if self._resumes_from:
                own = ("XREADGROUP", *arguments, "STREAMS", self._server.stream, self._resumes_from)
                found = _entries(self._server.ask_group(*own))
                self._resumes_from = found[-1][0] if found else b""  # what is claimed below may be older
                if found:
                    return found
            if found := _entries(self._server.ask_group("XREADGROUP", *arguments, "STREAMS", self._server.stream, ">")):
                return found
            lease = ("XAUTOCLAIM", self._server.stream, GROUP, self.name, int(self._lease_s * 1000), self._claims_from)
            self._claims_from, claimed, *_ = self._server.ask_group(*lease, "COUNT", _COUNT)
            held = self._held()
            if left := [each for each in claimed if each and each[1] and each[0] not in held]:
                return read_pairs(left)
            waiting = ("XREADGROUP", *arguments, "BLOCK", _BLOCK_MS, "STREAMS", self._server.stream, ">")
            return _entries(self._server.ask_group(*waiting))

        found = self._server.retry(read, "read rows")
        there = [(entry, fields) for entry, fields in found if fields]
        used = self._server.get(*(b"used:" + entry for entry, _ in there)) if there else []
        taken = {each.entry: each.end for batch in self._open for each in batch.taken}  # when they are read again
        for (entry, fields), used_rows, data in zip(there, used, self._server.read_rows(there), strict=True):
            begin, count = max(int(used_rows or 0), taken.get(entry, 0)), int(fields[b"n"])
            if data is not None and begin < count:  # others were evicted while a reader had them
                self._entries.append((entry, begin, count, int(fields[b"v"]), unpack(data)))
        return bool(found)

    def _held(self) -> set[bytes]:
        return {entry for entry, *_ in self._entries} | {each.entry for batch in self._open for each in batch.taken}


def _entries(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Read the reply of XREADGROUP for one stream."""
    return read_pairs(reply[0][1]) if reply else []
