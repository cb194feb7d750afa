"""`PendingSteps`: steps of a server's sessions whose reward may still change. Runs on the server's thread.

    update with `amend_within_s` --> the step's number, in the reply; the step is held back (`pool.held_steps`)
    amend, in time               --> `FinalEvent` with the reward: the step leaves
    nothing, or too late         --> `FinalEvent` without one: the step leaves with the reward that it has

Only this class decides which rewards are final, so what a client is told about an amendment is what is learned.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from surreal.rlx.pool.batches import FinalEvent
from surreal.rlx.protocol.errors import RlxRequestError, brief

#: What one env slot may hold back, in bytes of its rows.
_MAX_SLOT_BYTES = 64 << 20
#: What a row takes in addition to its observation.
_ROW_BYTES = 2048
_ID_BITS = 52  # JavaScript's whole numbers have 53


@dataclass
class _PendingSlot:
    """An env slot with pending steps."""

    rows: int = 0  #: that came since its first pending step
    steps: deque[tuple[int, int]] = field(default_factory=deque)  #: number of a step, and rows before it


@dataclass(eq=False, repr=False)
class PendingSteps:
    """See the module."""

    longest_s: float  #: longest time for which a step may be pending, s; 0: rewards cannot be amended
    obs_bytes: int  #: bytes of an observation: a client that sends faster than expected keeps fewer steps pending
    put: Callable[[FinalEvent], object]  #: hands an event over to the pool
    clock: Callable[[], float] = time.monotonic  #: s, never goes back

    def __post_init__(self) -> None:
        #: the env slots that hold back steps; each of their further rows is counted (`count_row`)
        self.slots: dict[int, _PendingSlot] = {}
        self._max_rows = max(1, _MAX_SLOT_BYTES // (self.obs_bytes + _ROW_BYTES))
        self._due_s: dict[int, float] = {}
        self._random = random.SystemRandom()  # one client cannot guess the numbers of another's steps
        self._amended = self._expired = self._refused = 0

    def read(self, request: Mapping[str, Any]) -> float | None:
        """Return for how long the reward may still change, s; None: it is final. Raises `RlxRequestError`."""
        within_s = request.get("amend_within_s")
        if within_s is None:
            return None
        if not self.longest_s:
            raise RlxRequestError("amend_within_s: rewards cannot be amended here; set rlx.max_amend_s in the run")
        if isinstance(within_s, bool) or not isinstance(within_s, int | float) or not 0 < within_s <= self.longest_s:
            raise RlxRequestError(
                f"amend_within_s is {brief(within_s)}; it must be > 0 and <= {self.longest_s:g}, rlx.max_amend_s"
            )
        if request.get("reward") is None:
            raise RlxRequestError("amend_within_s comes without a reward; send the one that counts if none follows")
        return float(within_s)

    def expect(self, slot: int, within_s: float | None, *, is_recorded: bool) -> int:
        """Return the number of a step whose reward may change in this time; 0: it is final, or is not recorded."""
        if within_s is None:
            return 0
        step_id = 1 + self._random.getrandbits(_ID_BITS)
        if is_recorded:
            self._due_s[step_id] = self.clock() + within_s
            found = self.slots.setdefault(slot, _PendingSlot())
            found.steps.append((step_id, found.rows))
        return step_id

    def holds(self, slot: int) -> bool:
        """Whether an env slot has steps whose reward may still change."""
        return slot in self.slots and any(step_id in self._due_s for step_id, _ in self.slots[slot].steps)

    def count_row(self, slot: int) -> None:
        """Count a row of an env slot that holds back steps, and give up on the oldest if there are too many."""
        found = self.slots[slot]
        found.rows += 1
        while found.steps:
            step_id, rows_before = found.steps[0]
            if step_id in self._due_s:
                if found.rows - rows_before <= self._max_rows:
                    return
                self._expire(step_id)
            found.steps.popleft()
        del self.slots[slot]

    def amend(self, step_id: Any, reward: float) -> bool:
        """Make a reward final; returns whether it was in time. Otherwise, it is refused and counted."""
        if type(step_id) is not int:
            raise RlxRequestError(f"step_id must be the number that an update returned, got {brief(step_id)}")
        if self._due_s.get(step_id, float("-inf")) <= self.clock():
            self._refused += 1
            return False
        del self._due_s[step_id]
        self._amended += 1
        self.put(FinalEvent(step_id, reward))
        return True

    def sweep(self) -> None:
        """Make the rewards final whose time is over; called about once a second."""
        now_s = self.clock()
        for step_id in [step_id for step_id, due_s in self._due_s.items() if due_s <= now_s]:
            self._expire(step_id)

    def metrics(self) -> dict[str, float]:
        """Return counters; none where rewards cannot be amended."""
        if not self.longest_s:
            return {}
        return {
            "rlx/amended_rewards_total": float(self._amended),
            "rlx/expired_rewards_total": float(self._expired),
            "rlx/refused_amendments_total": float(self._refused),
        }

    def _expire(self, step_id: int) -> None:
        del self._due_s[step_id]
        self._expired += 1
        self.put(FinalEvent(step_id, None))
