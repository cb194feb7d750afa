"""Bars, sparklines, numbers and durations as short text, in Unicode or ASCII."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.text import Text

from surreal.run.view.live.trend import mean


class Glyphs(NamedTuple):
    """The characters of a drawing, one cell each except the ellipsis."""

    levels: str  #: sparkline, from low to high
    full: str
    empty: str
    line: str
    ends: str  #: left and right end of a band
    marker: str
    ellipsis: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "█", "░", "─", "├┤", "●", "…")
#: For terminals without UTF-8.
ASCII = Glyphs("_.-:=+*#", "#", ".", "-", "||", "o", "...")


def draw_bar(share: float, width: int, glyphs: Glyphs) -> str:
    """Draw a bar that is full up to a share, 0..1; only 1 fills the last cell, and NaN is empty."""
    full = int(min(max(share, 0.0), 1.0) * width) if math.isfinite(share) else 0
    return glyphs.full * full + glyphs.empty * (width - full)


def draw_band(position: float, width: int, glyphs: Glyphs) -> str:
    """Draw a band with a marker at a position, 0..1; NaN has no marker."""
    line = [glyphs.line] * (width - 2)
    if math.isfinite(position) and line:
        line[round(min(max(position, 0.0), 1.0) * (len(line) - 1))] = glyphs.marker
    return glyphs.ends[0] + "".join(line) + glyphs.ends[1]


def draw_sparkline(values: Sequence[float], width: int, glyphs: Glyphs) -> str:
    """Draw a curve between its lowest and highest value; cells are means if there are many values, and NaN is a gap."""
    cells = _resample(values, width)
    finite = [value for value in cells if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    top = len(glyphs.levels) - 1

    def level(value: float) -> str:
        if not math.isfinite(value):
            return " "
        # Halved, because the difference of two numbers may overflow.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return glyphs.levels[round(share * top)]

    return "".join(map(level, cells))


def _resample(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    if count <= width:
        return list(values)
    edges = [index * count // width for index in range(width + 1)]
    return [mean(values[begin:end]) for begin, end in pairwise(edges)]


def number(value: float | None) -> str:
    """Format a return or a ratio in few characters; "-" if there is none yet."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if abs(value) < 1e6 or not math.isfinite(value) else f"{value:.3g}"


def rate(per_s: float) -> str:
    """Format a rate per second; small rates have more digits."""
    return f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.2g}"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    if not math.isfinite(seconds):
        return "-"
    whole = max(0, round(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days >= 100:
        return f"{days} d"
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def plain(text: str, glyphs: Glyphs) -> str:
    """Make foreign text safe to show: one line, no control characters, and ASCII if the terminal needs that."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown.encode("ascii", "replace").decode() if glyphs is ASCII else shown


def fitted(text: Text, width: int, glyphs: Glyphs) -> Text:
    """Shorten a line to a width, in place."""
    if text.cell_len > width:
        text.truncate(max(width - len(glyphs.ellipsis), 0), overflow="crop")
        text.append(glyphs.ellipsis[:width])
    text.no_wrap = True
    return text
