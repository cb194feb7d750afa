"""Amendments: steps that a sender holds back until their reward is known. Used by `ExpSender.amend`, on its thread.

A step is held in this process, with all rows that came after it, and never leaves with a reward that may still change.
So what is acknowledged is final, and a process that is killed loses only steps that were not acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from surreal.base.errors import BadValueError
from surreal.base.values import LARGEST
from surreal.distributed.experience.row_log import RowLog


class Amendments:
    """Numbers of steps whose reward may still change, each until its deadline, and counts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due_s: dict[int, float] = {}  # by step, the oldest first
        self._amended = self._expired = self._refused = 0
        self.is_used = False  #: whether a step was ever held back

    def expect(self, step_id: int, within_s: float) -> None:
        """Hold back a step, later than all others, for some s."""
        self._due_s[step_id] = self._clock() + within_s
        self.is_used = True

    def oldest(self) -> int | None:
        """Return the oldest step that is held back; None if there is none."""
        while self._due_s:
            step_id, due_s = next(iter(self._due_s.items()))
            if due_s > self._clock():
                return step_id
            del self._due_s[step_id]
            self._expired += 1
        return None

    def count_held(self, log: RowLog) -> int:
        """Count the rows from the outcome of the oldest step that is held back."""
        oldest = self.oldest()
        return 0 if oldest is None else log.offset + log.length - oldest

    def amend(self, log: RowLog | None, step_id: int, reward: float) -> bool:
        """Replace a reward and stop holding the step back; see `ExpSender.amend`."""
        if not abs(reward) <= LARGEST:
            raise BadValueError(f"an amended reward is {reward}; it must be finite, and no larger than {LARGEST:g}")
        if log is None or not self._due_s.get(step_id, float("-inf")) > self._clock():
            self._refused += 1
            return False
        del self._due_s[step_id]
        log.reward[step_id - log.offset] = reward
        self._amended += 1
        return True

    def forget(self) -> None:
        """Hold back no step any longer; those that were keep the reward that they have."""
        self._expired += len(self._due_s)
        self._due_s.clear()

    def metrics(self) -> dict[str, float]:
        return {
            "sender/amended_rewards_total": float(self._amended),
            "sender/expired_rewards_total": float(self._expired),
            "sender/refused_amendments_total": float(self._refused),
        }
