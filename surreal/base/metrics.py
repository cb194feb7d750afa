"""Meters: counts and durations of hot loops, read by telemetry; imports neither Redis nor torch.

A component writes on its own thread and the telemetry thread reads. A meter has one writer, which only adds to totals,
and one reader, which remembers the last totals: the loop needs no lock, and nothing is lost. Components expose
`metrics() -> dict[str, float]` with names `role/what_unit`; docs/metrics.md lists them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.ranges import PositiveInt, checked

#: Sources that telemetry reads once an interval, on its own thread.
MetricSource = Callable[[], Mapping[str, float]]
HistogramSource = Callable[[], Mapping[str, "Histogram"]]
ReadingSource = Callable[[], Iterable["Reading"]]


class Reading(NamedTuple):
    """Metrics of one moment, such as those of one update."""

    time: float  #: s since 1970, by this machine's clock
    step: int  #: env steps of the run
    values: Mapping[str, float]  #: by full name


@dataclass(eq=False)
class RateMeter:
    """Events per second over the last few seconds; if seconds are added, the share of the time."""

    name: str  #: metric's full name, ending in `_per_s`, or in `_ratio` if seconds are added
    window_s: float = 5.0  #: raising it smooths the rate of bursts, and delays it
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.begin(0.0)

    def begin(self, total: float) -> None:
        """Continue from an earlier total, which does not count for the rate; call it before the first reading."""
        self.total = total
        self._seen = deque([(self.clock(), total)])

    def add(self, count: float = 1) -> None:
        self.total += count

    def metrics(self) -> dict[str, float]:
        now, total, seen = self.clock(), self.total, self._seen
        while len(seen) > 1 and now - seen[1][0] >= self.window_s:
            seen.popleft()
        seen_time, seen_total = seen[0]
        if now <= seen_time:
            return {}
        seen.append((now, total))
        return {self.name: (total - seen_total) / (now - seen_time)}


class MeanDuration:
    """Mean duration of a repeated operation since the last reading; the metric's name ends in `_ms`."""

    def __init__(self, name: str) -> None:
        self.total = 0, 0.0  #: count and seconds since the start; hot loops add to it themselves
        self._name = name
        self._seen = 0, 0.0

    def add(self, duration_s: float) -> None:
        count, seconds = self.total
        self.total = count + 1, seconds + duration_s

    def metrics(self) -> dict[str, float]:
        """Return the mean, if there were operations since the last call."""
        (seen, seen_s), (count, seconds) = self._seen, self.total
        if count == seen:
            return {}
        self._seen = count, seconds
        return {self._name: 1e3 * (seconds - seen_s) / (count - seen)}


class EpisodeStatistics:
    """Means of returns and lengths of finished episodes since the last reading, and over the last `window`."""

    @checked
    def __init__(self, role: str, *, window: PositiveInt = 100, clock: Callable[[], float] = time.monotonic) -> None:
        self._role = role
        self._clock = clock
        self._recent: deque[float] = deque(maxlen=window)
        self._totals = (0, 0.0, 0.0, 0.0)
        self._seen = (0, 0.0, 0.0, 0.0)
        self._began = clock()
        self._ended: dict[int, float] = {}  # when the last episode of each environment ended

    def add(self, episode_return: float, length: int, env_id: int = 0) -> None:
        """Count an episode of an environment, from where its last one ended: the sum of raw rewards, and env steps."""
        count, returns, lengths, times = self._totals
        now = self._clock()
        time_s = now - self._ended.get(env_id, self._began)
        self._ended[env_id] = now
        self._recent.append(episode_return)
        self._totals = (count + 1, returns + episode_return, lengths + length, times + time_s)

    def metrics(self) -> dict[str, float]:
        """Return the total count and running mean, and the means since the last call if an episode ended."""
        totals = count, returns, lengths, times = self._totals
        if count == 0:
            return {}
        recent = self._recent.copy()  # one C call, so the writer cannot interrupt it
        role = self._role
        result = {
            f"{role}/episodes_total": float(count),
            f"{role}/episode_return_recent": math.fsum(recent) / len(recent),
        }
        new = count - self._seen[0]
        if new > 0:
            result[f"{role}/episode_return"] = (returns - self._seen[1]) / new
            result[f"{role}/episode_length"] = (lengths - self._seen[2]) / new
            if (time_s := times - self._seen[3]) > 0.0:
                result[f"{role}/episode_time_s"] = time_s / new
                result[f"{role}/reward_per_s"] = (returns - self._seen[1]) / time_s
            self._seen = totals
        return result


class Histogram(NamedTuple):
    """Summary of a distribution, without values that are not finite."""

    edges: NDArray[np.float64]  #: [bins + 1] ascending
    counts: NDArray[np.float64]  #: [bins]
    low: float
    high: float
    size: int
    total: float
    total_squares: float


def summarize(values: Any, *, bins: int = 30) -> Histogram:
    """Bin an array or a tensor of real numbers; raises `ValueError` if none is finite, or `bins` is not 1 to 1000. More
    bins show more detail and lengthen the record.
    """
    if not 1 <= bins <= 1000:
        raise ValueError(f"bins is {bins}; it must be between 1 and 1000")
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    flat = np.asarray(values, dtype=np.float64).ravel()
    flat = flat[np.isfinite(flat)]
    if flat.size == 0:
        raise ValueError("a histogram needs at least one finite value")
    counts, edges = np.histogram(flat, bins=bins)
    return Histogram(
        edges=edges.astype(np.float64),
        counts=counts.astype(np.float64),
        low=float(flat.min()),
        high=float(flat.max()),
        size=int(flat.size),
        total=float(flat.sum()),
        total_squares=float(np.square(flat).sum()),
    )
