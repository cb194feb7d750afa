"""Rows that a reader of a `DurableReplay` has taken, and has to commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray

from surreal.distributed.durable.packing import Columns


class Taken(NamedTuple):
    """The part of an entry that a batch takes."""

    entry: bytes  #: id in the stream
    begin: int  #: rows that earlier batches took
    end: int  #: rows that are taken after this batch
    rows: int  #: rows of the entry


class DurableBatch(Mapping[str, NDArray[Any]]):
    """Columns by name, as they were put; sequences are arrays of objects [B].

    As a context manager, it is committed at the end of the block; an exception releases it instead.

    Attributes:
        taken: the entries that the rows come from.
        stale_rows: rows that were passed over because their version was too old; they are removed with these.
        version: the oldest version of these rows.
        is_committed: whether the rows are gone from the replay.
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
        self.is_committed = False
        self.taken, self.stale_rows, self.version = taken, stale_rows, version

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """Number of rows."""
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
