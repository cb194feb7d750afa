"""`Startup`: how long a process took from its beginning until it worked, and what that time went to.

Its frame marks the moments; `surreal chaos` reads the parts from the heartbeat and adds what came before the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from surreal.base.system.process import process_age_s


class StartParts(NamedTuple):
    """Where the time until a process's first step went, s."""

    lease_s: float  #: waiting for leases and for the name of a predecessor
    restore_s: float  #: connecting, restoring, building
    first_step_s: float  #: from then to the first env step or update


class Startup:
    """The start of this process; marks may be set from any thread, and count once.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = clock() - (process_age_s(os.getpid()) or 0.0)
        self._leases: list[Callable[[], float]] = []
        self._restored: tuple[float, float] | None = None
        self._is_working = False
        self._untold: StartParts | None = None

    def watch_lease(self, waited_s: Callable[[], float]) -> None:
        """Count the time that `waited_s()` says was waited for a lease."""
        self._leases.append(waited_s)

    def mark_restored(self) -> None:
        """Note that everything is built, restored and connected."""
        self._restored = self._restored or (self._clock(), self._lease_s())

    def mark_first_step(self) -> None:
        """Note the first env step or update."""
        if not self._is_working and self._restored is not None:
            self._is_working = True
            now_s, lease_s = self._clock(), self._lease_s()
            restored_s, lease_before_s = self._restored
            first_step_s = now_s - restored_s - (lease_s - lease_before_s)
            self._untold = StartParts(lease_s, restored_s - self._began_s - lease_before_s, first_step_s)

    def metrics(self) -> dict[str, float]:
        """Return the parts once, after the first step; the heartbeat keeps them."""
        parts, self._untold = self._untold, None
        return {} if parts is None else {f"start_{name}": value for name, value in parts._asdict().items()}

    def _lease_s(self) -> float:
        return sum(waited_s() for waited_s in self._leases)
