"""Rows that a reader of a `DurableReplay` has taken, and has to commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

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

    Attributes:
        taken: the entries that the rows come from.
        stale_rows: rows that were passed over because their version was too old; they are removed with these.
        version: the oldest version of these rows.
    """

    def __init__(
        self,
        columns: Columns,
        taken: list[Taken],
        *,
        stale_rows: int,
        version: int,
        commit: Callable[[DurableBatch, bytes | None], None],
    ) -> None:
        self._columns = columns
        self._commit = commit
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
            ContractError: an earlier batch of this reader is not committed.
            RedisUnavailableError: Redis does not answer.
        """
        self._commit(self, state)
