"""From the names of runs to a picture and the numbers in it: what `surreal plot` does."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from surreal.base.errors import ConfigError, FolderError, describe_os_error
from surreal.plugins.plot.picture import Curve, Panel, draw, require_format
from surreal.plugins.recorded.curves import Axis, Band, group_band, run_line
from surreal.plugins.recorded.files import RunHistory
from surreal.plugins.recorded.history import RETURN
from surreal.plugins.recorded.settings import Group, group_runs, read_settings
from surreal.run.view.listing import ListedRun


@dataclass(frozen=True)
class PlotOptions:
    """What to draw, and how."""

    metrics: tuple[str, ...] = (RETURN,)
    axis: Axis = Axis.STEPS
    smoothing: float = 0.0  #: 0 to below 1, raising it smoothes more
    by: tuple[str, ...] | None = None  #: settings that tell groups apart; None: all
    confidence: float = 0.95  #: of the bands, above 0 and below 1
    shows_runs: bool = False  #: whether each run is drawn too
    title: str = ""
    is_log: bool = False


class Drawn(NamedTuple):
    """One curve of the picture, in numbers."""

    metric: str
    label: str
    runs: int  #: that it was made of
    last_x: float
    last: float
    low: float  #: NaN for one run
    high: float

    def __str__(self) -> str:
        band = "" if math.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.label}: {self.metric} {self.last:.4g}{band} at {self.last_x:,.0f}"


class Histories:
    """The histories of some runs.

    Args:
        runs: each with a folder.

    Raises:
        FolderError: a file cannot be read.
    """

    def __init__(self, runs: Sequence[ListedRun]) -> None:
        self.runs = [run for run in runs if run.folder is not None]
        self.histories: list[RunHistory] = []
        for run in self.runs:
            history = RunHistory(run.folder or Path())
            try:
                while not history.update():
                    pass
            except OSError as error:
                raise FolderError(f"{run.label} cannot be read: {describe_os_error(error)}") from error
            self.histories.append(history)

    def metrics(self) -> dict[str, int]:
        """Each metric, with how many of the runs have it."""
        names = sorted({name for history in self.histories for name in history.names()})
        return {name: sum(name in history.names() for history in self.histories) for name in names}

    def problems(self) -> list[str]:
        """What was passed over, in words."""
        found = []
        for run, history in zip(self.runs, self.histories, strict=True):
            if history.skipped:
                lines = "1 line" if history.skipped == 1 else f"{history.skipped:,} lines"
                were = "was" if history.skipped == 1 else "were"
                found.append(f"{run.label}: {lines} could not be read, and {were} passed over")
            if history.dropped:
                found.append(f"{run.label}: {history.dropped:,} numbers are of more metrics than can be kept")
        return found


def plot(histories: Histories, options: PlotOptions, path: Path, rng: np.random.Generator) -> list[Drawn]:
    """Draw curves into a file.

    Args:
        histories: histories of the runs.
        options: what to draw.
        path: path of the picture.
        rng: for the bootstrap.

    Raises:
        ConfigError: no run has such a metric or setting, or the file's ending is unknown.
        FolderError: the file cannot be written.
    """
    require_format(path)
    settings = [read_settings(run.folder or Path()) for run in histories.runs]
    groups = group_runs([run.name or run.label for run in histories.runs], settings, options.by)
    panels, drawn = [], []
    for metric in options.metrics:
        curves = [_curve(histories, group, metric, options, rng) for group in groups]
        curves = [curve for curve in curves if len(curve.band.x)]
        if not curves:
            raise ConfigError(_missing(metric, histories, options.axis), key="--metric")
        panels.append(Panel(metric, curves))
        drawn += [_in_numbers(metric, curve.label, curve.band) for curve in curves]
    draw(panels, options.axis, path, title=options.title, is_log=options.is_log)
    return drawn


def _curve(histories: Histories, group: Group, metric: str, options: PlotOptions, rng: np.random.Generator) -> Curve:
    members = [histories.histories[i] for i in group.members]
    lines = [run_line(each.curves(metric), metric, options.axis, each.started) for each in members]
    band = group_band(lines, group.strata, rng, smoothing=options.smoothing, confidence=options.confidence)
    count = sum(len(line.x) > 0 for line in lines)
    label = f"{group.label} ({count} runs)" if count > 1 else group.label
    return Curve(label, band, lines if options.shows_runs and count > 1 else ())


def _missing(metric: str, histories: Histories, axis: Axis) -> str:
    names = histories.metrics()
    if metric in names:
        return f"nobody knows where {metric} is along {axis.label}; choose another --x"
    near = difflib.get_close_matches(metric, names, 1, 0.5) or [name for name in names if metric in name]
    hint = f"; did you mean {near[0]}?" if near else "; --list shows what there is"
    return f"none of these runs has a metric {metric}{hint if names else ', nor any other yet'}"


def _in_numbers(metric: str, label: str, band: Band) -> Drawn:
    return Drawn(
        metric,
        label,
        int(band.runs[-1]),
        float(band.x[-1]),
        *(float(end[-1]) for end in (band.middle, band.low, band.high)),
    )
