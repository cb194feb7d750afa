"""ObservationPlace: decides once where a stream's observations are stored, and makes the store for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from surreal.base.errors import ContractError
from surreal.distributed.experience.codec import Contract
from surreal.distributed.experience.stream import Stream
from surreal.replay.store.remote_rows import RemoteRows
from surreal.replay.store.rows import CompressedRows, MirroredRows, Mode, Observations, Place, rows_expected

logger = logging.getLogger(__name__)


class ObservationPlace:
    """Used by the threads that read the stream and by the owner of the store; the first one decides.

    Args:
        mirror_max_bytes: most that "auto" mirrors.
    """

    def __init__(self, mode: Mode, *, capacity: int, mirror_max_bytes: int) -> None:
        self._mode = mode
        self._capacity = capacity
        self._mirror_max_bytes = mirror_max_bytes
        self._decided: tuple[int, Place] | None = None  # contract id, and the place

    def needs_blocks(self, contract: Contract) -> bool:
        """Whether observations are downloaded with their chunks."""
        return self._decide(contract) != "remote"

    def open(self, contract: Contract, streams: Sequence[Stream], stop: threading.Event) -> Observations:
        """Make the store of the observations; `streams` are those with remote ones, and `stop` ends waits for them."""
        place = self._decide(contract)
        if place == "remote":
            return RemoteRows(contract, streams, stop)
        kind = CompressedRows if place == "compressed" else MirroredRows
        return kind(contract, rows_expected(self._capacity))

    def _decide(self, contract: Contract) -> Place:
        if self._decided is None or self._decided[0] != contract.id:
            place = choose(self._mode, contract, capacity=self._capacity, mirror_max_bytes=self._mirror_max_bytes)
            self._decided = contract.id, place
        return self._decided[1]


def choose(mode: Mode, contract: Contract, *, capacity: int, mirror_max_bytes: int) -> Place:
    """Decide where observations are, from the contract and the capacity alone; `auto` mirrors at most
    `mirror_max_bytes`.

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
