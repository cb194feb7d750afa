"""`InterventionCounter`: how often something else takes over from the agent, in the last episodes."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import IS_INTERVENTION, StepBatch, StepKind

_WINDOW = 100
_STEPS, _REPLACED, _BEGUN, _GOES_ON = range(4)


class InterventionCounter:
    """Counts interventions by a pool's rows: consecutive steps whose actions were replaced are one intervention."""

    def __init__(self) -> None:
        self.total = 0
        self._slots: NDArray[np.int64] = np.zeros((0, 4), np.int64)  # of each environment's episode, see above
        self._episodes: deque[NDArray[np.int64]] = deque(maxlen=_WINDOW)

    def count(self, batch: StepBatch) -> None:
        """Count the steps that these rows complete; called with every batch of the pool."""
        missing = int(batch.env_ids.max(initial=-1)) + 1 - len(self._slots)
        if missing > 0:
            self._slots = np.pad(self._slots, ((0, missing), (0, 0)))
        self._slots[batch.closed_ids[batch.closed_ids < len(self._slots)]] = 0
        has_step = batch.kind != StepKind.FIRST
        slots, replaced = batch.env_ids[has_step], batch.info.get(IS_INTERVENTION)
        is_replaced = np.zeros(len(slots), np.int64) if replaced is None else replaced[has_step].astype(np.int64)
        begins = is_replaced * (1 - self._slots[slots, _GOES_ON])
        self._slots[slots, : _BEGUN + 1] += np.stack((np.ones_like(is_replaced), is_replaced, begins), axis=1)
        self._slots[slots, _GOES_ON] = is_replaced
        self.total += int(begins.sum())
        ended = batch.env_ids[: batch.num_last]
        self._episodes.extend(self._slots[ended])
        self._slots[ended] = 0

    def metrics(self) -> dict[str, float]:
        """Return the interventions so far, and those of the last 100 episodes; from any thread."""
        found = {"agent/interventions_total": float(self.total)}
        if episodes := list(self._episodes):
            steps, replaced, begun, _ = np.sum(episodes, axis=0).tolist()
            found["agent/interventions_per_episode"] = begun / len(episodes)
            found["agent/intervention_ratio"] = replaced / max(steps, 1)
        return found
