"""Where a replay's observation rows are: mirrored in this process, as they are or compressed, or left in Redis.

`TransitionStore` names rows by sequence numbers, which only grow, and asks for them; `choose` decides which of the
strategies answers: `MirroredRows`, `CompressedRows`, or `RemoteRows`. Batches are the same with each.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import ContractError
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.replay.store.ring import Ring

logger = logging.getLogger(__name__)

Place = Literal["mirrored", "compressed", "remote"]
Mode = Literal["mirrored", "compressed", "remote", "auto"]
MODES: tuple[Mode, ...] = ("mirrored", "compressed", "remote", "auto")

#: Arrays of rows' sequence numbers, of any shape: those of observations, [B] or [B, stack], those of the next ones, ...
Wanted = Sequence[NDArray[np.int64]]
#: One array [*shape of the rows, *leaf_shape] a leaf.
Leaves = list[NDArray[Any]]


class Observations(ABC):
    """Rows of observations, used by the replay's thread, which collects what it asked for in the same order.

    first = insert(chunk); ...; ask(wanted); ...; collect(wanted); ...; free_until(row)
    """

    #: Batches that should be asked for ahead of the one collected, so that a wait for one serves the next.
    asks_ahead = 0
    #: Rows that were asked for and were gone.
    gone_rows = 0

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    @property
    @abstractmethod
    def head(self) -> int:
        """Sequence number of the next row."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of observations in this process."""

    @abstractmethod
    def insert(self, chunk: Chunk) -> int:
        """Take in a chunk's rows; returns the first one's sequence number."""

    @abstractmethod
    def free_until(self, sequence: int) -> None:
        """Forget everything before this sequence number."""

    @abstractmethod
    def collect(self, wanted: Wanted) -> list[Leaves] | None:
        """Copies of the rows that were asked for first, for each array of them; None if some are gone."""

    def ask(self, wanted: Wanted) -> None:
        """Say which rows will be collected."""

    def fetch(self, rows: NDArray[np.int64]) -> Leaves:
        """Ask and collect at once: [*rows.shape, *leaf_shape] for each leaf; nothing else may be asked for.

        Raises:
            LookupError: some are gone.
        """
        self.ask((rows,))
        found = self.collect((rows,))
        if found is None:
            raise LookupError("some of the observations are gone from Redis")
        return found[0]

    def forget(self) -> None:
        """Drop what was asked for and not collected."""

    @property
    def gone_until(self) -> int:
        """All rows before this sequence number are gone."""
        return 0

    @property
    def has_gone(self) -> bool:
        """Whether any row is known to be gone that was not freed yet."""
        return False

    def are_gone(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows [B] are known to be gone."""
        return np.zeros(len(rows), np.bool_)

    def close(self) -> None:
        """Give back connections."""


class MirroredRows(Observations):
    """Rows in preallocated arrays of this process.

    Args:
        contract: what the stream holds.
        size: rows expected to be alive, a first size.
    """

    def __init__(self, contract: Contract, size: int) -> None:
        super().__init__(contract)
        self._names = [str(i) for i in range(len(contract.obs.leaves))]
        shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in zip(self._names, contract.obs.leaves, strict=True)}
        self.ring = Ring(shapes, size)

    @property
    def head(self) -> int:
        return self.ring.head

    @property
    def nbytes(self) -> int:
        return self.ring.nbytes

    def insert(self, chunk: Chunk) -> int:
        if not chunk.leaves:
            raise ValueError("a chunk came without its observations, which are to be mirrored")
        return self.ring.append(dict(zip(self._names, chunk.leaves, strict=True)), chunk.num_rows)

    def free_until(self, sequence: int) -> None:
        self.ring.free_until(sequence)

    def collect(self, wanted: Wanted) -> list[Leaves]:
        take = self.ring.take
        return [[take(name, rows) for name in self._names] for rows in wanted]


def rows_expected(capacity: int) -> int:
    """Observation rows to allocate for that many transitions: episodes and chunks have one more than steps."""
    return capacity + capacity // 8 + 1024


def choose(mode: Mode, contract: Contract, *, capacity: int, mirror_max_bytes: int) -> Place:
    """Decide where observations are, from the contract and the capacity alone.

    Args:
        mode: what was asked for.
        contract: of the stream.
        capacity: transitions kept.
        mirror_max_bytes: most that `auto` mirrors.

    Raises:
        ContractError: the stream is compressed, so rows cannot be fetched one by one, but would have to be.
    """
    needed = rows_expected(capacity) * contract.obs.row_bytes
    fits = needed <= mirror_max_bytes
    if not needed:
        mode = "mirrored"  # observations of no bytes cannot be fetched
    chosen: Place = mode if mode != "auto" else "mirrored" if fits else "remote"
    if chosen == "remote" and contract.compression is not None:
        because = "" if mode == "remote" else f"; mirrored, they take {needed} bytes, more than {mirror_max_bytes}"
        raise ContractError(
            f"observations cannot be remote: the stream's blocks are compressed ({contract.compression}){because}; "
            + ("use observations: mirrored" if mode == "remote" else "raise mirror_max_bytes, lower capacity")
            + ", use observations: compressed, or send without compression"
        )
    logger.info(
        "observations are %s (%s): %d transitions take %.1f MiB of rows, the budget is %.1f MiB",
        chosen, mode, capacity, needed / 2**20, mirror_max_bytes / 2**20,
    )  # fmt: skip
    return chosen
