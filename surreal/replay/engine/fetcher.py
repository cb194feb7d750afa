"""ExpFetcherQueue: batches made ahead of the learner."""

from __future__ import annotations

from typing import Generic, TypeVar

from surreal.base.pytorch import tensors_of
from surreal.base.system.threads import HandoverQueue
from surreal.base.types import Batch, TrajectoryBatch

B = TypeVar("B", bound=Batch | TrajectoryBatch)

#: Batches made ahead where nobody says how many: small ones, that the threads change less often; large ones, as many
#: as stay in a processor's cache, for memory that was in use a moment ago is written several times faster.
_LEAST_AHEAD, _MOST_AHEAD, _AHEAD_BYTES = 2, 8, 16 << 20


class ExpFetcherQueue(Generic[B]):
    """A bounded queue of batches; filled by the replay's thread, emptied by the learner, which waits for it.

    Args:
        prefetch: batches kept ready, >= 1; None: 2 to 8, as many as fit into 16 MiB. More smooth out pauses, and make
            samples older when they are used.
    """

    def __init__(self, prefetch: int | None) -> None:
        self._prefetch = prefetch or _LEAST_AHEAD
        self._is_open = prefetch is None
        self._queue: HandoverQueue[B] = HandoverQueue()  # bounded by `room`
        self._made: list[B] = []

    @property
    def room(self) -> int:
        """How many batches may be put."""
        return self._prefetch - len(self._queue) - len(self._made)

    def put(self, batch: B) -> None:
        """Add a batch, to be handed over; only the replay's thread does, after asking for `room`."""
        self._made.append(batch)
        if self._is_open:
            self._is_open = False
            fitting = _AHEAD_BYTES // max(sum(tensor.nbytes for tensor in tensors_of(batch)), 1)
            self._prefetch = min(max(fitting, _LEAST_AHEAD), _MOST_AHEAD)

    def hand_over(self) -> None:
        """Let the learner have what was put: several at once, for waking it costs as much as making a small batch."""
        for batch in self._made:
            self._queue.put(batch)
        self._made.clear()

    def dequeue(self, timeout_s: float) -> B | None:
        """The next batch, waiting for it; None if none came in time."""
        return self._queue.take(timeout_s)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the next batch, and leave it there; returns whether one came in time. For the learner."""
        return self._queue.wait(timeout_s)

    @property
    def is_low(self) -> bool:
        """Whether it is time to fill it again: half of it is empty."""
        return 2 * len(self._queue) <= self._prefetch

    def __len__(self) -> int:
        return len(self._queue)
