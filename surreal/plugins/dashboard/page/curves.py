"""The pane of curves: for each environment, a chart for each metric, and a color for each run or group of seeds.

Plotly draws. After eight colors, they repeat with another dash style.

Plotly reads a little markup in names. Names come from folders and from the network, so they are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

import numpy as np
from dash import dcc, html
from numpy.typing import NDArray

from surreal.plugins.dashboard.page.parts import Shown, note
from surreal.plugins.dashboard.sources.runs import Recorded, WatchedRun
from surreal.plugins.recorded.curves import COLORS, Axis, Band, Line, color, group_band, run_line, words_of
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
_DASHES = ("solid", "dash", "dot", "dashdot")


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


class Stroke(NamedTuple):
    """Color and dash style of a curve."""

    color: str
    dash: str = "solid"

    @classmethod
    def of(cls, number: int, theme: str) -> Stroke:
        dash = _DASHES[number // len(COLORS) % len(_DASHES)]
        return cls(color(number, is_dark=theme == "dark"), dash)


class Drawing(NamedTuple):
    """One curve of a figure."""

    label: str
    stroke: Stroke
    band: Band
    behind: Line | None = None  #: the curve before smoothing, drawn paler behind it


def first_metrics(loaded: Sequence[Loaded]) -> list[str]:
    """Return the metrics to show at first."""
    names = {name for each in loaded for name in each.recorded.history.names()}
    return [name for name in FIRST_METRICS if name in names][:_MAX_FIRST]


def groups_of(loaded: Sequence[Loaded], *, groups_seeds: bool) -> list[Group]:
    """Group the runs of each curve: the seeds of a configuration together, or each run alone."""
    settings = [each.run.settings() for each in loaded]
    tasks = [str(each.get("env.id", "")) for each in settings]
    if not groups_seeds:
        return [Group(each.run.listed.label, (i,), (tasks[i],)) for i, each in enumerate(loaded)]
    names = [each.run.listed.name or each.run.listed.label for each in loaded]
    groups = []
    for task in dict.fromkeys(tasks):  # each has its own charts, so labels need not name it
        places = [i for i, each in enumerate(tasks) if each == task]
        for group in group_runs([names[i] for i in places], [settings[i] for i in places]):
            groups.append(replace(group, members=tuple(places[i] for i in group.members)))
    return groups


def environments(loaded: Sequence[Loaded], view: View) -> list[Shown]:
    """Show a section for each environment: its name, a legend, and a chart for each metric."""
    labels, by_task = [each.run.listed.label for each in loaded], dict[str, list[Group]]()
    for group in groups_of(loaded, groups_seeds=view.groups_seeds):
        by_task.setdefault(group.strata[0], []).append(group)
    return [
        html.Section(
            [
                html.H2(task or "environment unknown"),
                legend([(group.label, [labels[i] for i in group.members]) for group in groups], view.theme),
                *charts(loaded, groups, view),
            ],
            className="environment",
        )
        for task, groups in sorted(by_task.items())
    ]


def legend(items: Sequence[tuple[str, list[str]]], theme: str) -> Shown:
    """Show the stroke of each curve, with its label, and the names behind it unless there is only this one."""
    shown = []
    for number, (label, names) in enumerate(items):
        stroke = Stroke.of(number, theme)
        chip = html.Span(className=f"swatch {stroke.dash}", style={"color": stroke.color})
        more = "" if names == [label] else ", ".join(names)
        words = [html.Span(label, className="legend-label"), html.Span(more, className="dim legend-label")]
        shown.append(html.Span([chip, *words], className="legend-item"))
    return html.Div(shown, className="legend")


def charts(loaded: Sequence[Loaded], groups: Sequence[Group], view: View) -> list[Shown]:
    """Draw a chart for each metric; those without data are a folded list."""
    drawn = {name: _drawings(loaded, groups, name, view) for name in view.metrics}
    keeps = f"{view.axis}{view.is_log}"
    shown = [
        chart(name, drawings, view.axis.words, view.theme, is_log=view.is_log, keeps=keeps)
        for name, drawings in drawn.items()
        if drawings
    ]
    parts: list[Shown] = [html.Div(shown, className="charts")] if shown else []
    if empty := [name for name, drawings in drawn.items() if not drawings]:
        summary = html.Summary(f"{len(empty)} of {len(drawn)} charts have no data yet")
        parts.append(html.Details([summary, note(", ".join(empty))], className="empty"))
    return parts


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


def _drawings(loaded: Sequence[Loaded], groups: Sequence[Group], name: str, view: View) -> list[Drawing]:
    drawings = []
    for number, group in enumerate(groups):
        histories = [loaded[i].recorded.history for i in group.members]
        lines = [run_line(each.curves(name), name, view.axis, each.started) for each in histories]
        rng = np.random.default_rng(0)  # the band does not flicker between updates
        band = group_band(lines, group.strata, rng, smoothing=view.smoothing, resamples=_RESAMPLES)
        if len(band.x):
            behind = lines[0] if view.smoothing and len(lines) == 1 else None
            drawings.append(Drawing(group.label, Stroke.of(number, view.theme), band, behind))
    return drawings


def chart(name: str, drawings: Sequence[Drawing], x_title: str, theme: str, **more: Any) -> Shown:
    """Draw a chart of a metric below its name in words; `more` goes to `figure`."""
    words = words_of(name)
    unit = "" if words.axis == words.title.lower() else words.axis
    title = html.H3([words.title or name, html.Span(unit, className="dim")], title=name)
    made = figure(drawings, x_title, theme, scale=words.scale, **more)
    return html.Section(
        [title, dcc.Graph(figure=made, config=CONFIG, style={"height": "250px"})], className="card chart"
    )


def figure(
    drawings: Sequence[Drawing], x_title: str, theme: str, *, scale: float = 1.0, is_log: bool = False, keeps: str = ""
) -> Any:
    """Build Plotly's figure of curves and their bands, with values multiplied by `scale`."""
    look = _THEMES.get(theme, _THEMES["light"])
    axis = {
        "gridcolor": look["grid"],
        "zeroline": False,
        "linecolor": look["grid"],
        "automargin": True,
        "tickfont": {"size": 11},
    }
    hover = {"color": look["hover_text"], "size": 11}
    return {
        "data": [trace for drawing in drawings for trace in _traces(drawing, scale)],
        "layout": {
            "margin": {"l": 44, "r": 12, "t": 6, "b": 36},
            "showlegend": False,
            "hovermode": "x unified",
            "hoverlabel": {"bgcolor": look["hover"], "bordercolor": look["grid"], "font": hover, "namelength": 40},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": look["text"], "family": "inherit", "size": 11},
            "xaxis": {**axis, "title": {"text": x_title, "font": {"size": 11}, "standoff": 6}, "nticks": 7},
            "yaxis": {**axis, "type": "log" if is_log else "linear", "nticks": 6},
            "uirevision": keeps or "same",
        },
    }


def _traces(drawing: Drawing, scale: float) -> list[dict[str, Any]]:
    band, stroke = drawing.band, drawing.stroke
    traces: list[dict[str, Any]] = []
    unlabeled = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    has_band = np.isfinite(band.low)
    if has_band.any():
        x = band.x[has_band]
        outline = {
            "x": _numbers(np.concatenate([x, x[::-1]])),
            "y": _numbers(scale * np.concatenate([band.high[has_band], band.low[has_band][::-1]])),
        }
        fill = {"fill": "toself", "fillcolor": _pale(stroke.color), "line": {"width": 0}}
        traces.append({**unlabeled, **outline, **fill})
    if drawing.behind is not None:
        pale = {"color": _pale(stroke.color, 0.35), "width": 1}
        points = {"x": _numbers(drawing.behind.x), "y": _numbers(scale * drawing.behind.y)}
        traces.append({**unlabeled, **points, "line": pale})
    traces.append(
        {
            "type": "scatter",
            "name": escape(drawing.label, quote=False),
            "x": _numbers(band.x),
            "y": _numbers(scale * band.middle),
            "mode": "lines" if len(band.x) > 1 else "markers",  # a line needs two points
            "line": {"color": stroke.color, "dash": stroke.dash, "width": 2},
            "marker": {"color": stroke.color, "size": 6},
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
