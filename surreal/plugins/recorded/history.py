"""Recorded metrics and evaluation rounds of one run as curves, thinned as they grow so that memory is bounded."""

from __future__ import annotations

import math
import threading
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.distributed.telemetry.records import decode_number

#: Rows of a curve: twice what a wide screen shows.
POINTS = 1000
#: Rows that are thinned together; a power of two.
_FRESH = 64


class Series:
    """Rows of numbers in order, each the mean of `stride` added rows; `stride` grows so that memory stays bounded.

    At least `points` rows remain after thinning, and at most twice as many are kept.
    """

    __slots__ = ("_fresh", "_fresh_limit", "_points", "_thinned", "_width", "stride")

    def __init__(self, width: int, points: int = POINTS) -> None:
        self._width = width
        self._points = points
        self._thinned = np.empty((0, width))
        self._fresh = array("d")
        self._fresh_limit = _FRESH * width
        self.stride = 1

    def add(self, row: Sequence[float]) -> None:
        self._fresh.extend(row)
        if len(self._fresh) >= self._fresh_limit:
            self._thinned = self.table()
            while len(self._thinned) >= 2 * self._points:
                self._thinned = _means(self._thinned, 2)
                self.stride *= 2
            self._fresh = array("d")
            self._fresh_limit = max(_FRESH, self.stride) * self._width

    def table(self) -> NDArray[np.float64]:
        """All rows, `[rows, width]`; the last one is the mean of its entries so far."""
        fresh = np.array(self._fresh).reshape(-1, self._width)
        return np.concatenate([self._thinned, _means(fresh, self.stride)])


def _means(rows: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Average groups of `size` rows, and the rest."""
    if size == 1 or not len(rows):
        return rows
    begins = np.arange(0, len(rows), size)
    counts = np.diff(np.append(begins, len(rows)))
    return np.asarray(np.add.reduceat(rows, begins) / counts[:, None])


#: Maximum number of curves of a run, and length of their names.
MAX_CURVES = 2000
MAX_NAME_CHARS = 200
#: Metrics of evaluation rounds, and their columns in `scores.jsonl`.
ROUND_METRICS = {
    "eval/episode_return": "mean_return",
    "eval/episode_return_std": "std_return",
    "eval/episode_length": "mean_length",
}
#: The metric that is shown first.
RETURN = "eval/episode_return"
UPDATES = "learner/updates_total"


#: Beyond this, a drawn scale overflows.
_LARGEST = 1e100
_LAST_TIME_S = 1e11  # the year 5138; beyond it dates overflow


class Rows(NamedTuple):
    """Columns of a curve, all of one length, in the order of writing."""

    time: NDArray[np.float64]  #: s since 1970
    step: NDArray[np.float64]  #: env steps of the run
    updates: NDArray[np.float64]  #: of the learner; NaN if unknown
    value: NDArray[np.float64]


class History:
    """Metrics of one run; one thread may add while others read.

    `RunHistory` fills it from a run's folder, the dashboard from heartbeats.
    """

    def __init__(self, points: int = POINTS) -> None:
        self._points = points
        self._lock = threading.RLock()
        self.version = 0  # grows with each addition
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._curves: dict[tuple[str, str], Series] = {}
            self._rounds: Series | None = None
            self.not_finite: Counter[str] = Counter()  # NaN, infinite or too large values, by metric: in no curve
            self.dropped = 0  # values beyond the maximum number of curves
            self.started = 0.0  # time of the first report, s since 1970; 0 if there was none

    def add(self, process: str, time_s: float, step: float, metrics: Mapping[str, Any]) -> None:
        """Add the metrics that a process reported at one time; raises `CodecError` if a value is not a number."""
        with self._lock:
            self.started = self.started or time_s
            self.version += 1
            for name, value in metrics.items():
                number = value if type(value) is float else decode_number(value)
                if not abs(number) < _LARGEST:  # NaN is not, either
                    self.not_finite[name] += 1
                    continue
                series = self._curves.get((name, process)) or self._new_curve(name, process)
                if series is None:
                    self.dropped += 1
                else:
                    series.add((time_s, step, number))

    def add_round(self, line: dict[str, Any]) -> None:
        """Add an evaluation round, a line of `scores.jsonl`; a round without a return is only counted. Raises
        `CodecError` if a value is not a number.
        """
        with self._lock:
            if line.get("mean_return") is None:
                self.not_finite[RETURN] += 1
                return
            # A user's own broadcaster need not send the run's progress.
            progress = [decode_number(line.get(key, "nan")) for key in ("time", "global_step", "updates")]
            values = [decode_number(line.get(key)) for key in ROUND_METRICS.values()]
            check_place(progress[0], *(number for number in progress[1:] if not math.isnan(number)))
            if not all(abs(number) < _LARGEST for number in values):
                raise CodecError("a round with numbers that are not finite")
            self.started = self.started or progress[0]
            self.version += 1
            if self._rounds is None:
                self._rounds = Series(len(progress) + len(values), self._points)
            self._rounds.add((*progress, *values))

    def names(self) -> list[str]:
        with self._lock:
            return sorted({name for name, _ in self._curves} | ({*ROUND_METRICS} if self._rounds else set()))

    def curves(self, name: str) -> dict[str, Rows]:
        """Curves of a metric by process; scores have one curve, of evaluation rounds."""
        with self._lock:
            if self._rounds and name in ROUND_METRICS:
                table = self._rounds.table()
                column = 3 + list(ROUND_METRICS).index(name)
                return {"eval": Rows(table[:, 0], table[:, 1], table[:, 2], table[:, column])}
            found = {}
            for (of_name, process), series in sorted(self._curves.items()):
                if of_name == name:
                    time, step, value = series.table().T
                    found[process] = Rows(time, step, self._updates_at(time), value)
            return found

    def _new_curve(self, name: str, process: str) -> Series | None:
        if len(self._curves) >= MAX_CURVES or len(name) > MAX_NAME_CHARS or len(process) > MAX_NAME_CHARS:
            return None
        series = self._curves[name, process] = Series(3, self._points)
        return series

    def _updates_at(self, time: NDArray[np.float64]) -> NDArray[np.float64]:
        """Interpolate the learner's updates at these times."""
        for (name, _), series in self._curves.items():
            if name == UPDATES:
                known = series.table()
                return np.interp(time, known[:, 0], known[:, 2])
        return np.full(len(time), np.nan)


def check_place(time_s: float, *counts: float) -> tuple[float, ...]:
    """Check time and progress of a run, and return them. Raises `CodecError` if the time is not a date, or a count is
    negative or too large.
    """
    if not 0 <= time_s < _LAST_TIME_S or not all(0 <= count < _LARGEST for count in counts):
        raise CodecError(f"time {time_s}, counts {counts}")
    return time_s, *counts
