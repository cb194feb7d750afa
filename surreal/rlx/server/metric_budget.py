"""How many metrics clients may send: what they send is written into the run's files, next to everything else."""

from __future__ import annotations

from surreal.rlx.server.metric_records import MetricRecord

#: Records of one session, and of all sessions of a server: in a second, in the long run, and at once.
SESSION_RATE, SESSION_BURST = 10.0, 500.0
SERVER_RATE, SERVER_BURST = 50.0, 2000.0
#: A histogram is written as so many scalars.
_HISTOGRAM_COST = 10.0
#: Different names of metrics, of all sessions of a server.
MAX_NAMES = 1000


class Budget:
    """A number of records that grows with time.

    Args:
        rate: records per s, in the long run.
        burst: records at once, at most; what there is in the beginning.
    """

    __slots__ = ("_burst", "_left", "_rate", "_time_s")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._left, self._time_s = rate, burst, burst, 0.0

    def has(self, cost: float, now_s: float) -> bool:
        """Whether so much is left."""
        self._left = min(self._burst, self._left + self._rate * (now_s - self._time_s))
        self._time_s = now_s
        return self._left >= cost

    def take(self, cost: float) -> None:
        """Take what `has` has found."""
        self._left -= cost


class MetricBudget:
    """What all sessions of a server may send.

    Attributes:
        dropped: records that were too many.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._names: set[str] = set()
        self._server = Budget(SERVER_RATE, SERVER_BURST)

    def admits(self, record: MetricRecord, session: Budget, now_s: float) -> bool:
        """Decide whether a record is written; what is not is counted."""
        cost = _HISTOGRAM_COST if record.method == "histogram" else 1.0
        is_known = record.name in self._names
        has_name = is_known or len(self._names) < MAX_NAMES
        if not (has_name and session.has(cost, now_s) and self._server.has(cost, now_s)):
            self.dropped += 1
            return False
        self._names.add(record.name)
        session.take(cost)
        self._server.take(cost)
        return True
