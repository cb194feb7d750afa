"""Draws the learning curves of runs into a picture, and returns the numbers in it.

Matplotlib draws one panel for each metric and one color for each group. Names come from folders and files: none of them
is read as a formula.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surreal.base.errors import ConfigError, FolderError, describe_os_error
from surreal.base.system.program import install_command
from surreal.plugins.plot.options import PlotOptions
from surreal.plugins.recorded.curves import COLORS, Axis, Band, Line, color, group_band, run_line, words_of
from surreal.plugins.recorded.files import RunHistory
from surreal.plugins.recorded.history import RETURN
from surreal.plugins.recorded.listing import ListedRun
from surreal.plugins.recorded.settings import Group, group_runs, read_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg", "pdf")
_PANEL_INCHES = (7.2, 3.8)
_DASHES = ("-", "--", ":", "-.")
_STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "text.parse_math": False,
    "svg.hashsalt": "surreal",  # the same curves make the same file
    "svg.fonttype": "none",
}


class Drawn(NamedTuple):
    """One curve of the picture, in numbers."""

    metric: str
    label: str
    runs: float  #: number of runs behind it
    last_x: float
    last: float
    low: float  #: NaN for one run
    high: float

    def __str__(self) -> str:
        band = "" if math.isnan(self.low) else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.label}: {self.metric} {self.last:.4g}{band} at {self.last_x:,.0f}"


class Curve(NamedTuple):
    """One group in one panel."""

    label: str
    band: Band
    runs: Sequence[Line] = ()  #: thin lines of the group's runs
    is_reference: bool = False  #: a value to compare with, drawn gray and dashed


class Histories:
    """The histories of the runs that have a folder."""

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
    """Draw curves into the file `path`, which is replaced; `rng` draws the bootstrap's samples."""
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise ConfigError(f"{path} must end with .{', .'.join(FORMATS[:-1])} or .{FORMATS[-1]}", key="-o")
    settings = [read_settings(run.folder or Path()) for run in histories.runs]
    groups = group_runs([run.name or run.label for run in histories.runs], settings, options.by)
    panels: dict[str, list[Curve]] = {}
    for metric in options.metrics or (RETURN,):
        curves = [_curve(histories, group, metric, options, rng) for group in groups]
        curves = [curve for curve in curves if len(curve.band.x)]
        if not curves:
            raise ConfigError(_missing(metric, histories, Axis(options.axis)), key="--metric")
        panels[metric] = curves
    tasks = ", ".join(sorted({task for group in groups for task in group.strata if task}))
    write_picture(panels, options, path, title=options.title or tasks)
    return [
        Drawn(metric, label, *(float(column[-1]) for column in (band.runs, band.x, band.middle, band.low, band.high)))
        for metric, curves in panels.items()
        for label, band, *_ in curves
    ]


def _curve(histories: Histories, group: Group, metric: str, options: PlotOptions, rng: np.random.Generator) -> Curve:
    members = [histories.histories[i] for i in group.members]
    lines = [run_line(each.curves(metric), metric, Axis(options.axis), each.started) for each in members]
    band = group_band(lines, group.strata, rng, smoothing=options.smoothing, confidence=options.confidence)
    count = sum(len(line.x) > 0 for line in lines)
    label = f"{group.label} ({count} runs)" if count > 1 else group.label
    return Curve(label, band, lines if options.shows_runs and count > 1 else ())


def _missing(metric: str, histories: Histories, axis: Axis) -> str:
    names = histories.metrics()
    if metric in names:
        return f"these runs do not record the {axis.label} of {metric}; choose another --x"
    near = difflib.get_close_matches(metric, names, 1, 0.5) or [name for name in names if metric in name]
    hint = f"; did you mean {near[0]}?" if near else "; --list shows their metrics"
    return f"none of these runs has a metric {metric}{hint if names else ', nor any other yet'}"


def write_picture(panels: Mapping[str, Sequence[Curve]], options: PlotOptions, path: Path, *, title: str) -> None:
    """Draw a panel for each metric into a file, below a title.

    Raises:
        ConfigError: matplotlib is not installed.
        FolderError: the file cannot be written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"pictures need matplotlib; install it: {install_command('plot')}") from error
    width, height = _PANEL_INCHES
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height * len(panels)), dpi=150, layout="constrained")
        every = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (metric, curves) in zip(every, panels.items(), strict=True):
            words = words_of(metric)
            axes.set_title(words.title, fontsize=10)
            axes.set_ylabel(words.axis)
            _draw_panel(axes, curves, words.scale, options.is_log)
        every[-1].set_xlabel(Axis(options.axis).words)
        figure.suptitle(title)
        try:
            # No date: the same curves make the same file.
            figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise FolderError(f"the picture could not be written: {describe_os_error(error)}") from error


def _draw_panel(axes: Axes, curves: Sequence[Curve], scale: float, is_log: bool) -> None:
    handles = []
    for number, curve in enumerate(curves):
        style: dict[str, Any] = {"color": color(number), "linestyle": _DASHES[number // len(COLORS) % len(_DASHES)]}
        if curve.is_reference:
            style = {"color": "0.4", "linestyle": "--"}
        for line in curve.runs:
            axes.plot(line.x, scale * line.y, linewidth=0.7, alpha=0.4, **style)
        # A line needs two points.
        x, (middle, low, high) = curve.band.x, (scale * values for values in curve.band[1:4])
        handles += axes.plot(x, middle, linewidth=1.8, marker="o" if len(x) == 1 else "", **style)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.margins(x=0.01)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    if is_log:
        axes.set_yscale("log")
    # A label that begins with an underscore would be left out.
    labels = [f"\N{ZERO WIDTH SPACE}{label}" if label.startswith("_") else label for label, *_ in curves]
    axes.legend(handles, labels, frameon=False, fontsize=9)
