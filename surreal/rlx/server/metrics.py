"""Metrics that clients send: checked records, within a budget per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.rlx.protocol.errors import RlxRequestError, RlxValueError, brief

#: Takes a metric of a client: "scalar" or "histogram", name, value, and the step or None.
MetricSink = Callable[[str, str, Any, int | None], None]

#: Records of one session, and of all sessions of a server: in a second, in the long run, and at once.
SESSION_RATE, SESSION_BURST = 10.0, 500.0
SERVER_RATE, SERVER_BURST = 50.0, 2000.0
#: Number of scalars that a histogram is written as.
_HISTOGRAM_COST = 10.0
#: Different names of metrics, of all sessions of a server.
MAX_NAMES = 1000


class Budget:
    """A number of records that grows by `rate` per s up to `burst`, the most at once."""

    __slots__ = ("_burst", "_left", "_rate", "_time_s")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._left, self._time_s = rate, burst, burst, 0.0

    def has(self, cost: float, now_s: float) -> bool:
        self._left = min(self._burst, self._left + self._rate * (now_s - self._time_s))
        self._time_s = now_s
        return self._left >= cost

    def take(self, cost: float) -> None:
        self._left -= cost


class MetricBudget:
    """Limits on the metrics of all sessions of a server."""

    def __init__(self) -> None:
        self.dropped = 0  #: records that were too many
        self._names: set[str] = set()
        self._server = Budget(SERVER_RATE, SERVER_BURST)

    def write(self, request: Mapping[str, Any], session: Budget, sink: MetricSink | None, now_s: float) -> None:
        """Check the records of a request, and pass them on within the budgets; raises as `read_metric`."""
        data = request.get("data")
        for record in [request] if data is None else data if isinstance(data, list) else [data]:
            found = read_metric(record)
            if sink is not None and self.admits(found, session, now_s):
                try:
                    sink(*found)
                except ValueError as error:
                    raise RlxRequestError(f"metric {found.name}: {error}") from error

    def admits(self, record: MetricRecord, session: Budget, now_s: float) -> bool:
        """Decide whether a record is written; others are counted."""
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


_MAX_NAME_CHARS = 200
_GROUP = "client/"
#: Steps that no run gets to in a century: one metric beyond would squeeze all others of a chart together.
_LARGEST_STEP = 10**12
#: Files of metrics hold float32.
_LARGEST_VALUE = float(np.finfo(np.float32).max)


class MetricRecord(NamedTuple):
    """One value of a client's."""

    method: str  #: "scalar" or "histogram"
    name: str  #: under a group of its own: a client's metric is nobody else's, whatever it calls it
    value: Any  #: a number, or an array of numbers for a histogram
    step: int | None  #: None: the run's


def read_metric(record: Any) -> MetricRecord:
    """Read one record; raises `RlxRequestError`, or `RlxValueError` if a number is not finite or too large."""
    if not isinstance(record, dict):
        raise RlxRequestError(f"a metric must be a dict with method, name, y and x, got {type(record).__name__}")
    method, name, x = record.get("method", "scalar"), record.get("name"), record.get("x")
    if not isinstance(method, str) or method not in ("scalar", "histogram"):
        raise RlxRequestError(f"the method of a metric must be scalar or histogram, got {brief(method)}")
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME_CHARS:
        raise RlxRequestError(f"the name of a metric must be 1 to {_MAX_NAME_CHARS} characters")
    if isinstance(x, float) and x.is_integer():
        x = int(x)
    if x is not None and (type(x) is not int or not 0 <= x <= _LARGEST_STEP):
        message = f"x of metric {name} must be None or an int from 0 to {_LARGEST_STEP}, got {brief(x)}"
        raise RlxValueError(message, leaf="x") if isinstance(x, int | float) else RlxRequestError(message)
    value = _numbers(record.get("y"), name)
    name = _GROUP + name.removeprefix(_GROUP)
    if method == "histogram":
        return MetricRecord(method, name, value, x)
    if value.size != 1:
        raise RlxRequestError(f"y of scalar {name} must be one number, got {value.size}")
    return MetricRecord(method, name, value.item(), x)


def _numbers(value: Any, name: str) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or not array.size:
        raise RlxRequestError(f"y of metric {name} must be a number or a list of numbers")
    if not (array.min() >= -_LARGEST_VALUE and array.max() <= _LARGEST_VALUE):
        raise RlxValueError(f"y of metric {name} must be finite, and in the range of a float32", leaf="y")
    return array
