"""Learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.run.view.history import Rows

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999933")
#: The same, brighter, for a dark ground.
BRIGHT_COLOURS = ("#4da3e0", "#ff8747", "#2cc795", "#e59bc6", "#f2b93b", "#8bd0f5", "#b79ce6", "#c9c95e")


def colour(number: int, *, is_dark: bool = False) -> str:
    """The colour of a curve by its number; after the last they begin again."""
    return (BRIGHT_COLOURS if is_dark else COLOURS)[number % len(COLOURS)]


Floats = NDArray[np.float64]

#: What a rate or a count of the run adds up from: each of these processes does a part of the work.
_SHARED_WORK = ("agent/", "env/", "sender/", "rlx/")
_SUMMED = ("_per_s", "_total", "_count")


class Axis(StrEnum):
    """What a curve goes along."""

    STEPS = "steps"
    UPDATES = "updates"
    SECONDS = "seconds"

    @property
    def label(self) -> str:
        """For a picture."""
        return {"steps": "env steps", "updates": "updates", "seconds": "seconds"}[self]


class Line(NamedTuple):
    """A curve: x grows from point to point."""

    x: Floats
    y: Floats


def line_of(rows: Rows, axis: Axis, started: float) -> Line:
    """The curve of one process; of what a run did again, after it went back to a checkpoint, the newest counts.

    Args:
        rows: what it reported.
        axis: what to go along; points of which nobody knows where they are on it are left out.
        started: the beginning of the run, s since 1970.
    """
    x = {Axis.STEPS: rows.step, Axis.UPDATES: rows.updates, Axis.SECONDS: rows.time - started}[axis]
    is_known = np.isfinite(x)
    x, y = x[is_known], rows.value[is_known]
    if not len(x):
        return Line(x, y)
    later = np.minimum.accumulate(x[::-1])[::-1]  # the least x from here on
    is_kept = np.append(x[:-1] < later[1:], True)
    return Line(x[is_kept], y[is_kept])


def run_line(curves: Mapping[str, Rows], name: str, axis: Axis, started: float) -> Line:
    """The curve of a run: the mean over its processes, or their sum where each does a part of what is counted."""
    lines = [line_of(rows, axis, started) for rows in curves.values()]
    lines = [line for line in lines if len(line.x)]
    if len(lines) <= 1:
        return lines[0] if lines else Line(np.empty(0), np.empty(0))
    grid = np.unique(np.concatenate([line.x for line in lines]))
    values = np.stack([on_grid(line, grid) for line in lines])
    total, count = np.nansum(values, axis=0), np.isfinite(values).sum(axis=0)
    is_summed = name.startswith(_SHARED_WORK) and name.endswith(_SUMMED)
    return Line(grid, total if is_summed else total / count)


def on_grid(line: Line, grid: Floats) -> Floats:
    """The values of a curve at some places, between its points; NaN before its first and behind its last."""
    return np.interp(grid, line.x, line.y, left=np.nan, right=np.nan)


def smooth(values: Floats, weight: float) -> Floats:
    """Exponential moving average, corrected for its beginning as in Kingma and Ba 2015, algorithm 1; NaN stays NaN.

    Args:
        values: at places of equal distance.
        weight: of what was before, 0 to below 1; 0 changes nothing, raising it smoothes more.
    """
    if not weight:
        return values
    smoothed, mean, norm = np.empty_like(values), 0.0, 0.0
    for i, value in enumerate(values):
        if np.isfinite(value):
            mean = weight * mean + (1.0 - weight) * value
            norm = weight * norm + (1.0 - weight)
            smoothed[i] = mean / norm
        else:
            smoothed[i] = np.nan
    return smoothed


#: Numbers that the drawn runs of one pass may have, which bounds the memory.
_BLOCK = 4 << 20


def interquartile_mean(values: Floats, axis: int = 0) -> Floats:
    """Mean of what is left along an axis after a quarter of it, rounded down, was dropped at each end."""
    size = values.shape[axis]
    dropped = size // 4
    if not dropped:
        return np.asarray(values.mean(axis=axis))
    kept = np.take(np.sort(values, axis=axis), range(dropped, size - dropped), axis=axis)
    return np.asarray(kept.mean(axis=axis))


def bootstrap_interval(
    strata: Sequence[Floats], rng: np.random.Generator, *, confidence: float = 0.95, resamples: int = 2000
) -> tuple[Floats, Floats]:
    """Lower and upper end of the interval of the IQM over all runs, at each point.

    Args:
        strata: of each task its runs, `[runs, points]`; all finite.
        rng: draws the runs.
        confidence: raising it widens the interval; 0 to 1.
        resamples: how often runs are drawn; raising it makes the ends steadier.

    Returns:
        Two arrays `[points]`.
    """
    points = strata[0].shape[1]
    runs = sum(len(stratum) for stratum in strata)
    middles = np.empty((resamples, points))
    # The same runs are drawn at all points: the points of a run belong together.
    drawn = [rng.integers(0, len(stratum), (resamples, len(stratum))) for stratum in strata]
    size = max(1, _BLOCK // max(1, runs * points))
    for begin in range(0, resamples, size):
        part = slice(begin, begin + size)
        samples = [stratum[index[part]] for stratum, index in zip(strata, drawn, strict=True)]
        middles[part] = interquartile_mean(np.concatenate(samples, axis=1), axis=1)
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(middles, (tail, 1.0 - tail), axis=0)
    return low, high


#: Points of a curve of a group.
GRID_POINTS = 300


class Band(NamedTuple):
    """A curve with its band; all of one length."""

    x: Floats
    middle: Floats
    low: Floats  #: NaN where there is one run, of which nothing can be said
    high: Floats
    runs: NDArray[np.int64]  #: how many there are at each point


def group_band(
    lines: Sequence[Line],
    strata: Sequence[str],
    rng: np.random.Generator,
    *,
    smoothing: float = 0.0,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Band:
    """Put the curves of a group together.

    Where some of the runs have not begun, or are over, the others count, as long as they are at least half.

    Args:
        lines: of each run; those without points are left out.
        strata: of each run, its task.
        rng: for the bootstrap.
        smoothing: of each run, before they are put together; see `smooth`.
        confidence: of the band, 0 to 1.
        resamples: see `bootstrap_interval`.
    """
    tasks = np.array([task for task, line in zip(strata, lines, strict=True) if len(line.x)])
    lines = [line for line in lines if len(line.x)]
    if not lines:
        nothing = np.empty(0)
        return Band(nothing, nothing, nothing, nothing, np.empty(0, np.int64))
    grid = _grid(lines)
    values = np.stack([smooth(on_grid(line, grid), smoothing) for line in lines])
    is_there = np.isfinite(values)
    runs = is_there.sum(axis=0)
    middle, low, high = (np.full(len(grid), np.nan) for _ in range(3))
    # Points at which the same runs are there are worked out together: there are few kinds of them.
    for present in np.unique(is_there[:, 2 * runs >= len(lines)], axis=1).T:
        points = (is_there == present[:, None]).all(axis=0)
        part = values[np.ix_(present, points)]
        middle[points] = interquartile_mean(part)
        if len(part) > 1:
            of_tasks = [part[tasks[present] == task] for task in np.unique(tasks[present])]
            low[points], high[points] = bootstrap_interval(of_tasks, rng, confidence=confidence, resamples=resamples)
    is_known = np.isfinite(middle)
    return Band(grid[is_known], middle[is_known], low[is_known], high[is_known], runs[is_known])


def _grid(lines: Sequence[Line]) -> Floats:
    """Places from the first point of any run to the last; the points themselves if they are few and of one run."""
    if len(lines) == 1 and len(lines[0].x) <= GRID_POINTS:
        return lines[0].x
    return np.linspace(min(line.x[0] for line in lines), max(line.x[-1] for line in lines), GRID_POINTS)
