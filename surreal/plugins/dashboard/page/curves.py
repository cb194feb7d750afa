"""The pane of curves: one chart for each metric, one color for each run or group of seeds, drawn by Plotly.

Plotly reads a little markup in names. Names come from folders and from the network, so they are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from dash import dcc, html
from numpy.typing import NDArray

from surreal.plugins.dashboard.page.parts import Shown, note
from surreal.plugins.dashboard.sources.runs import Recorded, WatchedRun
from surreal.plugins.recorded.curves import Axis, Band, Line, color, group_band, run_line
from surreal.plugins.recorded.history import RETURN
from surreal.plugins.recorded.settings import Group, group_runs

#: Metrics that are shown until the user chooses, of runs that have them.
FIRST_METRICS = (
    RETURN,
    "agent/episode_return_recent",
    "learner/loss",
    "learner/policy_loss",
    "learner/value_loss",
    "learner/policy_lag_versions",
    "agent/env_steps_per_s",
    "learner/updates_per_s",
)
_MAX_FIRST = 6
#: Fewer than for a picture in a paper: the page computes them again every few seconds.
_RESAMPLES = 300
#: No buttons over the curves: dragging zooms, a double click resets; `surreal plot` makes files.
CONFIG: Any = {"displayModeBar": False, "responsive": True}
#: Colors of each theme: text, grid lines, and the box next to the pointer.
_THEMES = {
    "light": {"text": "#57606a", "grid": "#e7eaee", "hover": "#ffffff", "hover_text": "#1f2328"},
    "dark": {"text": "#9aa4b2", "grid": "#2a313c", "hover": "#1c222b", "hover_text": "#e6e9ee"},
}
_DIGITS = 6


class View(NamedTuple):
    """The user's choices for the curves."""

    metrics: Sequence[str]
    axis: Axis = Axis.STEPS
    smoothing: float = 0.0
    groups_seeds: bool = True
    is_log: bool = False
    theme: str = "light"


class Loaded(NamedTuple):
    """A run with its curves."""

    run: WatchedRun
    recorded: Recorded


class Drawing(NamedTuple):
    """One curve of a figure."""

    label: str
    color: str
    band: Band
    behind: Line | None = None  #: the curve before smoothing, drawn paler behind it


def first_metrics(loaded: Sequence[Loaded]) -> list[str]:
    """Return the metrics to show at first."""
    names = {name for each in loaded for name in each.recorded.history.names()}
    return [name for name in FIRST_METRICS if name in names][:_MAX_FIRST]


def groups_of(loaded: Sequence[Loaded], *, groups_seeds: bool) -> list[Group]:
    """Group the runs of each curve: the seeds of a configuration together, or each run alone."""
    if not groups_seeds:
        return [Group(each.run.listed.label, (i,), ("",)) for i, each in enumerate(loaded)]
    names = [each.run.listed.name or each.run.listed.label for each in loaded]
    return group_runs(names, [each.run.settings() for each in loaded])


def legend(groups: Sequence[Group], theme: str) -> list[Shown]:
    """Show the color of each group."""
    return [
        html.Span(
            [
                html.Span(className="swatch", style={"background": _color_of(number, theme)}),
                html.Span(group.label, className="legend-label"),
                html.Span(f"{len(group.members)} runs" if len(group.members) > 1 else "", className="dim"),
            ],
            className="legend-item",
        )
        for number, group in enumerate(groups)
    ]


def charts(loaded: Sequence[Loaded], groups: Sequence[Group], view: View) -> list[Shown]:
    """Draw a chart for each metric."""
    return [_chart(loaded, groups, name, view) for name in view.metrics]


def problems(loaded: Sequence[Loaded]) -> str:
    """Describe what is missing in the curves; "" if nothing is."""
    reading = [each for each in loaded if each.recorded.progress < 1.0]
    words = []
    if reading:
        words.append(
            f"reading {', '.join(f'{each.run.listed.label} {each.recorded.progress:.0%}' for each in reading)}"
        )
    for each in loaded:
        if each.recorded.problem:
            words.append(each.recorded.problem)
        if each.recorded.skipped:
            words.append(f"{each.run.listed.label}: {each.recorded.skipped:,} unreadable lines passed over")
    return " · ".join(words)


def _chart(loaded: Sequence[Loaded], groups: Sequence[Group], name: str, view: View) -> Shown:
    drawings = []
    for number, group in enumerate(groups):
        histories = [loaded[i].recorded.history for i in group.members]
        lines = [run_line(each.curves(name), name, view.axis, each.started) for each in histories]
        rng = np.random.default_rng(0)  # the band does not flicker between updates
        band = group_band(lines, group.strata, rng, smoothing=view.smoothing, resamples=_RESAMPLES)
        if len(band.x):
            behind = lines[0] if view.smoothing and len(lines) == 1 else None
            drawings.append(Drawing(group.label, _color_of(number, view.theme), band, behind))
    return chart(name, drawings, view.axis.label, view.theme, is_log=view.is_log, keeps=f"{view.axis}{view.is_log}")


def _color_of(number: int, theme: str) -> str:
    return color(number, is_dark=theme == "dark")


def chart(name: str, drawings: Sequence[Drawing], x_title: str, theme: str, **more: Any) -> Shown:
    """Draw a chart below its name; `more` goes to `figure`."""
    drawn = (
        dcc.Graph(figure=figure(drawings, x_title, theme, **more), config=CONFIG, style={"height": "250px"})
        if drawings
        else note("nothing yet")
    )
    return html.Section([html.H3(name), drawn], className="card chart")


def figure(drawings: Sequence[Drawing], x_title: str, theme: str, *, is_log: bool = False, keeps: str = "") -> Any:
    """Build Plotly's figure of curves and their bands."""
    look = _THEMES.get(theme, _THEMES["light"])
    axis = {
        "gridcolor": look["grid"],
        "zeroline": False,
        "linecolor": look["grid"],
        "automargin": True,
        "tickfont": {"size": 11},
    }
    return {
        "data": [trace for drawing in drawings for trace in _traces(drawing)],
        "layout": {
            "margin": {"l": 44, "r": 12, "t": 6, "b": 36},
            "showlegend": False,
            "hovermode": "x unified",
            "hoverlabel": {
                "bgcolor": look["hover"],
                "bordercolor": look["grid"],
                "font": {"color": look["hover_text"], "size": 11},
                "namelength": 40,
            },
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": look["text"], "family": "inherit", "size": 11},
            "xaxis": {**axis, "title": {"text": x_title, "font": {"size": 11}, "standoff": 6}, "nticks": 7},
            "yaxis": {**axis, "type": "log" if is_log else "linear", "nticks": 6},
            "uirevision": keeps or "same",
        },
    }


def _traces(drawing: Drawing) -> list[dict[str, Any]]:
    band = drawing.band
    traces: list[dict[str, Any]] = []
    unlabeled = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    has_band = np.isfinite(band.low)
    if has_band.any():
        x = band.x[has_band]
        outline = {
            "x": _numbers(np.concatenate([x, x[::-1]])),
            "y": _numbers(np.concatenate([band.high[has_band], band.low[has_band][::-1]])),
        }
        fill = {"fill": "toself", "fillcolor": _pale(drawing.color), "line": {"width": 0}}
        traces.append({**unlabeled, **outline, **fill})
    if drawing.behind is not None:
        pale = {"color": _pale(drawing.color, 0.35), "width": 1}
        points = {"x": _numbers(drawing.behind.x), "y": _numbers(drawing.behind.y)}
        traces.append({**unlabeled, **points, "line": pale})
    traces.append(
        {
            "type": "scatter",
            "name": escape(drawing.label, quote=False),
            "x": _numbers(band.x),
            "y": _numbers(band.middle),
            "mode": "lines" if len(band.x) > 1 else "markers",  # a line needs two points
            "line": {"color": drawing.color, "width": 2},
            "marker": {"color": drawing.color, "size": 6},
            "hovertemplate": "%{y:.5~g}",
        }
    )
    return traces


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Round numbers for the page; JSON has no NaN and no infinity."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]


def _pale(color: str, opacity: float = 0.18) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
