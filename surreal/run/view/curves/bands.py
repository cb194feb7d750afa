"""The curve of a group of runs: their interquartile mean along a common axis, with its confidence band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.run.view.curves.line import Floats, Line, on_grid, smooth
from surreal.run.view.curves.statistics import bootstrap_interval, interquartile_mean

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
