"""ObservationPlace: decides once where the observations of a stream are, and makes what holds them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from surreal.distributed.experience.codec import Contract
from surreal.distributed.experience.stream import Stream
from surreal.replay.store.compressed_rows import CompressedRows
from surreal.replay.store.observations import MODES, MirroredRows, Mode, Observations, Place, choose, rows_expected
from surreal.replay.store.remote_rows import RemoteRows


class ObservationPlace:
    """Asked by the threads that read the stream and by the one that owns the store; the first decides.

    Args:
        mode: what was asked for.
        capacity: transitions kept.
        mirror_max_bytes: most that "auto" mirrors.

    Raises:
        ValueError: there is no such mode.
    """

    def __init__(self, mode: Mode, *, capacity: int, mirror_max_bytes: int) -> None:
        if mode not in MODES:
            raise ValueError(f"observations is {mode!r}; it must be one of {', '.join(MODES)}")
        self._mode = mode
        self._capacity = capacity
        self._mirror_max_bytes = mirror_max_bytes
        self._decided: tuple[int, Place] | None = None  # contract id, and the place

    def needs_blocks(self, contract: Contract) -> bool:
        """Whether observations are to be downloaded with their chunks."""
        return self._decide(contract) != "remote"

    def open(self, contract: Contract, streams: Sequence[Stream], stop: threading.Event) -> Observations:
        """Make what holds the observations.

        Args:
            contract: of the streams.
            streams: where remote ones are.
            stop: ends waits for remote ones.
        """
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
