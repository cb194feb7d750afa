"""A metric of one run as one line: its processes put together, over the axis that was asked for, smoothed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.run.view.reading.history import Rows

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
