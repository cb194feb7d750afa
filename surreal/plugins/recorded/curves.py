"""Learning curves of one run and of many, over env steps, updates or seconds, smoothed, with confidence bands.

Pure functions on arrays; `surreal plot` and `surreal dashboard` draw their results. A band is the interquartile mean
(IQM) with a stratified bootstrap interval of percentiles: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge
of the Statistical Precipice", arXiv:2108.13264, section 4 and appendix A.6. With few seeds, a mean follows the luckiest
run, and a median hardly uses the others. `words_of` has titles of charts, and labels of their axes with units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.config.yaml_tree import read_table
from surreal.plugins.recorded.history import Rows

#: Colors that color-blind people can tell apart, after Okabe and Ito 2008.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999933")
#: The same colors, brighter, for a dark background.
BRIGHT_COLORS = ("#4da3e0", "#ff8747", "#2cc795", "#e59bc6", "#f2b93b", "#8bd0f5", "#b79ce6", "#c9c95e")


def color(number: int, *, is_dark: bool = False) -> str:
    """Color of a curve by its number; colors repeat after the last."""
    return (BRIGHT_COLORS if is_dark else COLORS)[number % len(COLORS)]


Floats = NDArray[np.float64]

#: Rates and counts of these processes add up: each does a part of the work.
_SHARED_WORK = ("agent/", "env/", "sender/", "rlx/")
_SUMMED = ("_per_s", "_total", "_count")


class Axis(StrEnum):
    """Horizontal axis of a curve."""

    STEPS = "steps"
    UPDATES = "updates"
    SECONDS = "seconds"

    @property
    def label(self) -> str:
        return {"steps": "env steps", "updates": "updates", "seconds": "seconds"}[self]

    @property
    def words(self) -> str:
        """Words below the axis."""
        return {"steps": "environment steps", "updates": "updates of the learner", "seconds": "time, s"}[self]


class Line(NamedTuple):
    """A curve; x grows from point to point."""

    x: Floats
    y: Floats


def line_of(rows: Rows, axis: Axis, started: float) -> Line:
    """Make the curve of one process; points whose place on the axis is unknown are left out.

    Where a run repeated steps after going back to a checkpoint, the newest count.
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
    """Make the curve of a run: the mean over its processes, or the sum if each does a part of the work."""
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
    """Interpolate a curve; NaN before its first point and after its last."""
    return np.interp(grid, line.x, line.y, left=np.nan, right=np.nan)


def smooth(values: Floats, weight: float) -> Floats:
    """Compute the exponential moving average, bias-corrected as in Kingma and Ba 2015, algorithm 1; NaN stays NaN.

    Args:
        values: at equal distances.
        weight: weight of earlier values, 0 <= weight < 1; 0 changes nothing, raising it smooths more.
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


#: Maximum number of values in one pass of the bootstrap, which bounds memory.
_BLOCK = 4 << 20


def interquartile_mean(values: Floats, axis: int = 0) -> Floats:
    """Compute the mean after dropping a quarter of the values, rounded down, at each end."""
    size = values.shape[axis]
    dropped = size // 4
    if not dropped:
        return np.asarray(values.mean(axis=axis))
    kept = np.take(np.sort(values, axis=axis), range(dropped, size - dropped), axis=axis)
    return np.asarray(kept.mean(axis=axis))


def bootstrap_interval(
    strata: Sequence[Floats], rng: np.random.Generator, *, confidence: float = 0.95, resamples: int = 2000
) -> tuple[Floats, Floats]:
    """Compute the ends of the IQM's interval at each point; runs are resampled with replacement within each task.

    Args:
        strata: runs of each task, `[runs, points]`; all finite.
        rng: draws the runs.
        confidence: 0 to 1; raising it widens the interval.
        resamples: raising it makes the ends more stable.

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


#: Points of a group's curve.
GRID_POINTS = 300


class Band(NamedTuple):
    """A curve with its band; all arrays have one length."""

    x: Floats
    middle: Floats
    low: Floats  #: NaN where there is only one run
    high: Floats
    runs: NDArray[np.int64]  #: number of runs at each point


def group_band(
    lines: Sequence[Line],
    strata: Sequence[str],
    rng: np.random.Generator,
    *,
    smoothing: float = 0.0,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Band:
    """Combine the curves of a group; where runs have not begun or are over, the others count if they are at least half.

    Each run is smoothed first, as in `smooth`; `strata` has the task of each, and `rng` draws for the bootstrap.
    """
    tasks = np.array([task for task, line in zip(strata, lines, strict=True) if len(line.x)])
    lines = [line for line in lines if len(line.x)]
    if not lines:
        nothing = np.empty(0)
        return Band(nothing, nothing, nothing, nothing, np.empty(0, np.int64))
    if len(lines) == 1 and len(lines[0].x) <= GRID_POINTS:
        grid = lines[0].x
    else:
        grid = np.linspace(min(line.x[0] for line in lines), max(line.x[-1] for line in lines), GRID_POINTS)
    values = np.stack([smooth(on_grid(line, grid), smoothing) for line in lines])
    is_there = np.isfinite(values)
    runs = is_there.sum(axis=0)
    middle, low, high = (np.full(len(grid), np.nan) for _ in range(3))
    # Points with the same runs are computed together: there are few combinations.
    for present in np.unique(is_there[:, 2 * runs >= len(lines)], axis=1).T:
        points = (is_there == present[:, None]).all(axis=0)
        part = values[np.ix_(present, points)]
        middle[points] = interquartile_mean(part)
        if len(part) > 1:
            of_tasks = [part[tasks[present] == task] for task in np.unique(tasks[present])]
            low[points], high[points] = bootstrap_interval(of_tasks, rng, confidence=confidence, resamples=resamples)
    is_known = np.isfinite(middle)
    return Band(grid[is_known], middle[is_known], low[is_known], high[is_known], runs[is_known])


_MIB = 1 / (1 << 20)


class Words(NamedTuple):
    """A metric in words."""

    title: str  #: "" for a name without a group
    axis: str  #: what the values are, with their unit
    scale: float = 1.0  #: values are multiplied by it to have this unit


_KNOWN = {name: Words(*words) for name, words in read_table(__package__, "words.yaml").items()}
#: Units by the end of a name.
_UNITS = {
    "_bytes_total": ("MiB in total", _MIB),
    "_bytes": ("MiB", _MIB),
    "_s_total": ("seconds in total", 1.0),
    "_total": ("total", 1.0),
    "_count": ("number", 1.0),
    "_per_s": ("per second", 1.0),
    "_ms": ("milliseconds", 1.0),
    "_s": ("seconds", 1.0),
    "_ratio": ("share, 0 to 1", 1.0),
    "_versions": ("versions", 1.0),
}


def words_of(name: str) -> Words:
    """Describe a metric; one that is not known is described by its name and the unit at the name's end."""
    if name in _KNOWN:
        return _KNOWN[name]
    group, slash, stem = name.partition("/")
    if not slash:
        return Words("", name)
    end = next((end for end in _UNITS if f"_{stem}".endswith(end)), "")
    words = (f"_{stem}".removesuffix(end).strip("_") or stem).replace("_", " ")
    unit, scale = _UNITS.get(end, (words, 1.0))
    return Words(f"{words[:1].upper()}{words[1:]} ({group})", unit, scale)
