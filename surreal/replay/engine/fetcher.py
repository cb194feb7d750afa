"""ExpFetcherQueue: batches gathered ahead of the learner, and how rows become tensors."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from surreal.replay.store.storage import Rows
from surreal.specs import ObsSpec
from surreal.types import Batch
from surreal.utils.handover import HandoverQueue
from surreal.utils.pytorch import tensors_of

#: Batches made ahead where nobody says how many: small ones, that the threads change less often; large ones, as many
#: as stay in a processor's cache, for memory that was in use a moment ago is written several times faster.
_LEAST_AHEAD, _MOST_AHEAD, _AHEAD_BYTES = 2, 8, 16 << 20


class ExpFetcherQueue:
    """A bounded queue of batches; filled by the replay's thread, emptied by the learner, which waits for it.

    Args:
        prefetch: batches kept ready, >= 1; None: 2 to 8, as many as fit into 16 MiB. More smooth out pauses, and make
            samples older when they are used.
    """

    def __init__(self, prefetch: int | None) -> None:
        self._prefetch = prefetch or _LEAST_AHEAD
        self._is_open = prefetch is None
        self._queue: HandoverQueue[Batch] = HandoverQueue()  # bounded by `room`
        self._made: list[Batch] = []

    @property
    def room(self) -> int:
        """How many batches may be put."""
        return self._prefetch - len(self._queue) - len(self._made)

    def put(self, batch: Batch) -> None:
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

    def dequeue(self, timeout_s: float) -> Batch | None:
        """The next batch, waiting for it; None if none came in time."""
        return self._queue.take(timeout_s)

    @property
    def is_low(self) -> bool:
        """Whether it is time to fill it again: half of it is empty."""
        return 2 * len(self._queue) <= self._prefetch

    def __len__(self) -> int:
        return len(self._queue)


def to_batch(rows: Rows, spec: ObsSpec, *, pin_memory: bool = False) -> Batch:
    """Wrap freshly gathered rows as tensors.

    Args:
        rows: of the batch; the memory is shared, nothing is copied unless it is pinned. Pinned tensors are contiguous.
        spec: leaves of an observation.
        pin_memory: copy into page-locked memory, from which a GPU fetches a batch while it computes; needs CUDA.
    """

    def wrap(array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return pin(tensor) if pin_memory else tensor

    return Batch(
        obs=spec.unflatten([wrap(leaf) for leaf in rows.obs]),
        action=wrap(rows.action),
        reward=wrap(rows.reward),
        discount=wrap(rows.discount),
        next_obs=spec.unflatten([wrap(leaf) for leaf in rows.next_obs]),
        extras={name: wrap(column) for name, column in rows.extras.items()},
        sample_info=rows.sample_info,
    )


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Copy into page-locked memory, in one piece: what has gaps cannot be moved to a GPU without waiting."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)
