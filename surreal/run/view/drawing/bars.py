"""Bars, sparklines and bands as text, with the characters that a terminal has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from surreal.run.view.live.history import mean


class Glyphs(NamedTuple):
    """The characters of a drawing, one cell each but for the ellipsis."""

    levels: str  #: of a sparkline, from low to high
    full: str
    empty: str
    line: str
    ends: str  #: of a band: left and right
    marker: str
    ellipsis: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "█", "░", "─", "├┤", "●", "…")
#: For terminals without UTF-8.
ASCII = Glyphs("_.-:=+*#", "#", ".", "-", "||", "o", "...")


def draw_bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A bar that is full up to a share, 0..1; only a whole one is full to its end, and NaN is empty."""
    full = int(min(max(share, 0.0), 1.0) * width) if math.isfinite(share) else 0
    return glyphs.full * full + glyphs.empty * (width - full)


def draw_band(position: float, width: int, glyphs: Glyphs) -> str:
    """A band from edge to edge, with a marker at a position, 0..1; NaN has none."""
    line = [glyphs.line] * (width - 2)
    if math.isfinite(position) and line:
        line[round(min(max(position, 0.0), 1.0) * (len(line) - 1))] = glyphs.marker
    return glyphs.ends[0] + "".join(line) + glyphs.ends[1]


def draw_sparkline(values: Sequence[float], width: int, glyphs: Glyphs) -> str:
    """A curve from its lowest value to its highest; of more values than cells, each cell is a mean; NaN is a gap."""
    cells = _resample(values, width)
    finite = [value for value in cells if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    top = len(glyphs.levels) - 1

    def level(value: float) -> str:
        if not math.isfinite(value):
            return " "
        # Halved, since the difference of two numbers may be none.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return glyphs.levels[round(share * top)]

    return "".join(map(level, cells))


def _resample(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    if count <= width:
        return list(values)
    edges = [index * count // width for index in range(width + 1)]
    return [mean(values[begin:end]) for begin, end in pairwise(edges)]
