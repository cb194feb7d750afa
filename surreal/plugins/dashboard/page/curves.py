"""The pane of curves: one chart a metric, one color a group of seeds or a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from dash import dcc, html

from surreal.plugins.dashboard.page.figures import Drawing, figure
from surreal.plugins.dashboard.page.parts import Shown, note
from surreal.plugins.dashboard.sources.watched import Recorded, WatchedRun
from surreal.plugins.recorded.curves import Axis, Line, color, group_band, run_line
from surreal.plugins.recorded.history import RETURN
from surreal.plugins.recorded.settings import Group, group_runs

#: What is shown of runs that have it, before anybody has chosen.
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
#: Fewer than for a picture in a paper: the page makes them again every few seconds.
_RESAMPLES = 300
#: No buttons over the curves: to drag zooms, a double click goes back; `surreal plot` makes files.
CONFIG: Any = {"displayModeBar": False, "responsive": True}


class View(NamedTuple):
    """How a person wants to see curves."""

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


def first_metrics(loaded: Sequence[Loaded]) -> list[str]:
    """The metrics to begin with."""
    names = {name for each in loaded for name in each.recorded.history.names()}
    return [name for name in FIRST_METRICS if name in names][:_MAX_FIRST]


def groups_of(loaded: Sequence[Loaded], *, groups_seeds: bool) -> list[Group]:
    """What becomes one curve: the seeds of a configuration together, or each run."""
    if not groups_seeds:
        return [Group(each.run.listed.label, (i,), ("",)) for i, each in enumerate(loaded)]
    names = [each.run.listed.name or each.run.listed.label for each in loaded]
    return group_runs(names, [each.run.settings() for each in loaded])


def legend(groups: Sequence[Group], theme: str) -> list[Shown]:
    """Which color is whose."""
    return [
        html.Span(
            [
                html.Span(className="swatch", style={"background": _colour(number, theme)}),
                html.Span(group.label, className="legend-label"),
                html.Span(f"{len(group.members)} runs" if len(group.members) > 1 else "", className="dim"),
            ],
            className="legend-item",
        )
        for number, group in enumerate(groups)
    ]


def charts(loaded: Sequence[Loaded], groups: Sequence[Group], view: View) -> list[Shown]:
    """A chart for each metric."""
    return [_chart(loaded, groups, name, view) for name in view.metrics]


def problems(loaded: Sequence[Loaded]) -> str:
    """What is not in the curves, in words; "" if all is."""
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


def line_in(each: Loaded, name: str, axis: Axis) -> Line:
    """A metric of a run."""
    history = each.recorded.history
    return run_line(history.curves(name), name, axis, history.started)


def _chart(loaded: Sequence[Loaded], groups: Sequence[Group], name: str, view: View) -> Shown:
    drawings = []
    for number, group in enumerate(groups):
        lines = [line_in(loaded[i], name, view.axis) for i in group.members]
        rng = np.random.default_rng(0)  # the band does not flicker from one answer to the next
        band = group_band(lines, group.strata, rng, smoothing=view.smoothing, resamples=_RESAMPLES)
        if len(band.x):
            behind = lines[0] if view.smoothing and len(lines) == 1 else None
            drawings.append(Drawing(group.label, _colour(number, view.theme), band, behind))
    return chart(name, drawings, view.axis.label, view.theme, is_log=view.is_log, keeps=f"{view.axis}{view.is_log}")


def _colour(number: int, theme: str) -> str:
    return color(number, is_dark=theme == "dark")


def chart(name: str, drawings: Sequence[Drawing], x_title: str, theme: str, **more: Any) -> Shown:
    """One chart under its name."""
    drawn = (
        dcc.Graph(figure=figure(drawings, x_title, theme, **more), config=CONFIG, style={"height": "250px"})
        if drawings
        else note("nothing yet")
    )
    return html.Section([html.H3(name), drawn], className="card chart")
