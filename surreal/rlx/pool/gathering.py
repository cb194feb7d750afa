"""`Gathering`: how long the sessions of a batch wait for others. Pure; `RlxEnvPool` asks it."""

from __future__ import annotations

#: Below this many rows gained by waiting, on average, waiting is not worth it, and is only tried now and then.
_WORTHWHILE_ROWS = 0.5
_RETRY_INTERVAL_BATCHES = 32
#: Weight of what was known before, in the running means.
_DECAY = 0.9


class Gathering:
    """Decides when a batch begins, on the agent loop's thread.

    Larger batches cost less for each row, so a session may wait while its action still comes in time. Where others
    rarely come meanwhile, because their environments are slow or few, no session waits for them.

    Args:
        window_s: longest wait for requests of further sessions, >= 0.
        max_wait_s: longest time from a session's request to its action that a wait for others may lead to, > 0; it
            replaces the window. None: there is no such limit.
    """

    def __init__(self, window_s: float, max_wait_s: float | None) -> None:
        self._window_s = window_s
        self._max_wait_s = max_wait_s
        self._acting_s = 0.0
        self._gain = 1.0
        self._batches = 0

    def end_s(self, oldest_s: float, now_s: float) -> float:
        """Return until when to wait; not after `now_s`: not at all.

        Args:
            oldest_s: when the oldest request of the batch came.
            now_s: the current time, of the same clock.
        """
        if self._gain < _WORTHWHILE_ROWS and self._batches % _RETRY_INTERVAL_BATCHES:
            return now_s
        if self._max_wait_s is None:
            return now_s + self._window_s
        return oldest_s + self._max_wait_s - self._acting_s

    def note_gain(self, rows: int) -> None:
        """Take the number of rows that came during a wait."""
        self._gain = _DECAY * self._gain + (1 - _DECAY) * rows

    def note_acting(self, seconds: float) -> None:
        """Take the time from the beginning of a batch to its actions."""
        self._batches += 1
        # A slower batch than usual counts at once, because a deadline that is missed is worse than a small batch.
        self._acting_s = max(seconds, _DECAY * self._acting_s + (1 - _DECAY) * seconds)
