"""Numbers, durations and texts, short enough for a line."""

from __future__ import annotations

import math

from rich.text import Text

from surreal.run.view.drawing.bars import ASCII, Glyphs


def number(value: float | None) -> str:
    """A return or a ratio in few characters; "-" if there is none yet."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if abs(value) < 1e6 or not math.isfinite(value) else f"{value:.3g}"


def rate(per_s: float) -> str:
    """How often a second; seldom things have digits of their own."""
    return f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.2g}"


def duration(seconds: float) -> str:
    """In the two largest units that say something."""
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
    """A text that came from elsewhere, in one line, and without what would steer the terminal or is not in its set."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown.encode("ascii", "replace").decode() if glyphs is ASCII else shown


def fitted(text: Text, width: int, glyphs: Glyphs) -> Text:
    """A line that is no longer than this, in place."""
    if text.cell_len > width:
        text.truncate(max(width - len(glyphs.ellipsis), 0), overflow="crop")
        text.append(glyphs.ellipsis[:width])
    text.no_wrap = True
    return text
