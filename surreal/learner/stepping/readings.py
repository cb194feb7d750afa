"""`Readings`: the metrics of updates, on their way from the learner's thread to the telemetry's, each once."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from torch import Tensor

from surreal.base.metrics import Reading

logger = logging.getLogger(__name__)

#: Readings that wait for the telemetry, at most: more than come in one of its intervals.
_MAX_READINGS = 2000


class Readings:
    """Reads metrics, and keeps them until they are taken."""

    def __init__(self) -> None:
        self._waiting: deque[Reading] = deque(maxlen=_MAX_READINGS)
        self._was_finite = True

    def read(self, metrics: Mapping[str, Tensor | float], *, updates: int, step: int) -> dict[str, float]:
        """Read the metrics of an update; waits for the device.

        Args:
            metrics: scalars by bare name.
            updates: done so far, this one included.
            step: env steps of the run.

        Returns:
            The same as numbers.
        """
        found = {name: float(value.detach() if isinstance(value, Tensor) else value) for name, value in metrics.items()}
        broken = [name for name, value in found.items() if not math.isfinite(value)]
        if broken and self._was_finite:
            logger.warning("update %d: %s is not finite", updates, broken[0])
        self._was_finite = not broken
        values = {f"learner/{name}": value for name, value in found.items()}
        # The number of the update places its metrics along the axis of updates.
        self._waiting.append(Reading(time.time(), step, {**values, "learner/updates_total": float(updates)}))
        return found

    def take(self) -> list[Reading]:
        """Take what was read since the last call, update by update; from any thread."""
        taken = list[Reading]()
        with suppress(IndexError):
            while True:
                taken.append(self._waiting.popleft())
        return taken
