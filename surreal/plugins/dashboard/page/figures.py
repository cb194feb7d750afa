"""Curves as figures for Plotly, in the page's colors.

Plotly reads a little markup in names; names come from folders and from the network, so it is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.plugins.recorded.curves import Band, Line

#: Of the light and the dark page: words, lines behind curves, the little window next to the pointer.
_THEMES = {
    "light": {"text": "#57606a", "grid": "#e7eaee", "hover": "#ffffff", "hover_text": "#1f2328"},
    "dark": {"text": "#9aa4b2", "grid": "#2a313c", "hover": "#1c222b", "hover_text": "#e6e9ee"},
}
_DIGITS = 6


class Drawing(NamedTuple):
    """One curve of a figure."""

    label: str
    color: str
    band: Band
    behind: Line | None = None  #: drawn paler behind it: the same before it was smoothed


def figure(drawings: Sequence[Drawing], x_title: str, theme: str, *, is_log: bool = False, keeps: str = "") -> Any:
    """A figure of curves and their bands.

    Args:
        drawings: the curves.
        x_title: below them.
        theme: light or dark.
        is_log: whether values are on a logarithmic scale.
        keeps: as long as this is the same, the part that a person zoomed into stays.
    """
    look = _THEMES.get(theme, _THEMES["light"])
    traces: list[dict[str, Any]] = []
    for drawing in drawings:
        traces += _traces(drawing)
    axis = {
        "gridcolor": look["grid"],
        "zeroline": False,
        "linecolor": look["grid"],
        "automargin": True,
        "tickfont": {"size": 11},
    }
    return {
        "data": traces,
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
    has_band = np.isfinite(band.low)
    if has_band.any():
        x = band.x[has_band]
        edge = np.concatenate([band.high[has_band], band.low[has_band][::-1]])
        traces.append(
            {
                "type": "scatter",
                "x": _numbers(np.concatenate([x, x[::-1]])),
                "y": _numbers(edge),
                "fill": "toself",
                "fillcolor": _pale(drawing.color),
                "line": {"width": 0},
                "mode": "lines",
                "hoverinfo": "skip",
            }
        )
    if drawing.behind is not None:
        pale = {"color": _pale(drawing.color, 0.35), "width": 1}
        behind = {"type": "scatter", "mode": "lines", "line": pale, "hoverinfo": "skip"}
        traces.append({**behind, "x": _numbers(drawing.behind.x), "y": _numbers(drawing.behind.y)})
    traces.append(
        {
            "type": "scatter",
            "name": escape(drawing.label, quote=False),
            "x": _numbers(band.x),
            "y": _numbers(band.middle),
            # One point makes no line.
            "mode": "lines" if len(band.x) > 1 else "markers",
            "line": {"color": drawing.color, "width": 2},
            "marker": {"color": drawing.color, "size": 6},
            "hovertemplate": "%{y:.5~g}",
        }
    )
    return traces


def _numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Short numbers for a page; JSON has none that are not finite."""
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in values]


def _pale(color: str, opacity: float = 0.18) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
