"""BatchSampler: draws transitions, asks for their observations, and draws again when some are gone.

Called by the replay's thread. With mirrored observations a batch is there at once; with remote ones it is asked for
while the one before it is being fetched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from surreal.replay.store.storage import Request, Rows, TransitionStore

#: Sequence numbers of transitions [B]; or these and the probability of each [B].
Drawn = NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]

#: How often a batch is drawn again before the replay's thread looks after other things.
_MAX_TRIES = 16


def draw_uniform(rng: np.random.Generator, begin: int, end: int, size: int) -> NDArray[np.int64]:
    """Numbers [size] of begin .. end - 1, uniformly, with replacement; `Generator.integers` takes three times as long.

    A float64 in [0, 1) times a number below 2**53 stays below it, and no number is more likely than another by more
    than one part in 2**53 / (end - begin).
    """
    return (rng.random(size) * (end - begin)).astype(np.int64) + begin


class BatchSampler:
    """Batches of one store, in the order in which they were asked for.

    Args:
        store: holds the transitions.
        batch_size: of them to draw.
        sample: draws that many of the live.
        after_loss: called when observations were gone: lets go what has lost them; returns whether to draw again.
    """

    def __init__(
        self,
        store: TransitionStore,
        batch_size: int,
        *,
        sample: Callable[[int], Drawn],
        after_loss: Callable[[], bool],
    ) -> None:
        self._store = store
        self._batch_size = batch_size
        self._sample = sample
        self._after_loss = after_loss
        self._asked: deque[Request] = deque()

    @property
    def num_asked(self) -> int:
        """Batches that were asked for and not collected."""
        return len(self._asked)

    @property
    def asks_ahead(self) -> int:
        """Batches that should be asked for ahead of the one collected."""
        return self._store.rows.asks_ahead

    def ask(self) -> None:
        """Draw a batch and ask for it."""
        drawn = self._draw()
        if isinstance(drawn, tuple):
            indices, probability = drawn
        else:
            indices, probability = drawn, np.full(len(drawn), 1.0 / len(self._store))
        self._asked.append(self._store.request(indices, probability))

    def collect(self) -> Rows | None:
        """The oldest batch asked for; None if what remains is too little, or batch after batch had gone rows."""
        for _ in range(_MAX_TRIES):
            if not self._asked:
                return None
            rows = self._store.collect(self._asked.popleft())
            if rows is not None:
                return rows
            if self._after_loss():
                self.ask()
        return None

    def _draw(self) -> Drawn:
        """Draw; where rows are known to be gone, others that were drawn take their place."""
        drawn = self._sample(self._batch_size)
        indices = drawn[0] if isinstance(drawn, tuple) else drawn
        are_gone = self._store.are_gone(indices)
        if are_gone is None or not are_gone.any():
            return drawn
        indices = indices.copy()
        probability = drawn[1].copy() if isinstance(drawn, tuple) else None
        for _ in range(_MAX_TRIES):
            again = self._sample(self._batch_size)
            others = again[0] if isinstance(again, tuple) else again
            gone_too = self._store.are_gone(others)
            # In the same place: a sampler may have drawn its rows from different parts.
            places = np.flatnonzero(are_gone if gone_too is None else are_gone & ~gone_too)
            indices[places], are_gone[places] = others[places], False
            if probability is not None and isinstance(again, tuple):
                probability[places] = again[1][places]
            if not are_gone.any():
                break
        return indices if probability is None else (indices, probability)
