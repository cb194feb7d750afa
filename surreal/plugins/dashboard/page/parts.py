"""Parts of the page that several views share: badges, tables, logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dash import html

from surreal.plugins.recorded.files import LogRecord

MAX_VIDEOS = 24


def log_lines(records: Sequence[LogRecord]) -> Shown:
    """Records of a run, the newest at the bottom, where the pane stays."""
    if not records:
        return note("No record fits.")
    # The pane grows upwards, so that it shows its end without a script: the newest comes first.
    lines = [
        html.Div(
            [
                html.Span(record.time[11:23], className="log-time", title=record.time),
                html.Span(record.level, className="log-level"),
                html.Span(record.process, className="log-process"),
                html.Span(record.text, className="log-text"),
            ],
            className=f"log-line level-{record.level}",
        )
        for record in reversed(records)
    ]
    return html.Div(lines, className="log")


def find_videos(folder: Path) -> list[Path]:
    """List the newest videos of a run's evaluation, the newest first, without links that lead out of the folder."""
    try:
        root = folder.resolve()
        found = [
            path
            for path in (folder / "eval" / "videos").iterdir()
            if path.suffix in (".mp4", ".gif", ".webm") and path.is_file() and path.resolve().is_relative_to(root)
        ]
        return sorted(found, key=lambda path: (path.stat().st_mtime, path.name), reverse=True)[:MAX_VIDEOS]
    except OSError:
        return []


def videos(key: str, found: Sequence[Path]) -> Shown:
    """Videos of a run, to be played in the page."""
    if not found:
        return note("This run has no videos here; eval.record_video_every records them.")
    return html.Div([_video(key, path) for path in found], className="videos")


def _video(key: str, path: Path) -> Shown:
    address = f"/videos/{key}/{path.name}"
    player = (
        html.Img(src=address, alt=path.name)
        if path.suffix == ".gif"
        else html.Video(src=address, controls=True, preload="metadata")
    )
    words = [html.Span(path.name), html.Span(size(path.stat().st_size), className="dim")]
    return html.Figure([player, html.Figcaption(words)], className="card video")


#: Anything that Dash shows.
Shown = Any

NOTHING = "–"


def number(value: float | None, digits: int = 4) -> str:
    """A number as a person reads it: 12,345, 0.01234, 1.2e-07."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def short_number(value: float) -> str:
    """A count in little room: 950, 12.3k, 4.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def size(value: float | None) -> str:
    """A number of bytes."""
    if value is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def duration(seconds: float | None, *, is_short: bool = False) -> str:
    """A time that passed: 12 s, 3 min 20 s, 5 h 12 min, 2 d 3 h; in short 3 min, 5 h, 2 d."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    whole = max(0, round(seconds))
    for unit, name, part, part_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name}" + (f" {rest} {part_name}" if rest and not is_short else "")
    return f"{whole} s"


def percent(value: float | None) -> str:
    """A share, 0 to 1."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.0%}"


def badge(state: str) -> Shown:
    """A state in its color."""
    return html.Span(state, className=f"badge state-{state}")


def bar(share: float | None, label: str = "") -> Shown:
    """A bar that is filled to a share, 0 to 1, with words in it."""
    width = 0.0 if share is None or not math.isfinite(share) else min(max(share, 0.0), 1.0)
    fill = html.Div(className="bar-fill", style={"width": f"{100 * width:.1f}%"})
    return html.Div([fill, html.Span(label or percent(share), className="bar-label")], className="bar")


def note(text: str) -> Shown:
    """A sentence in place of something."""
    return html.P(text, className="note")


def table(heads: Sequence[str], rows: Sequence[Sequence[Shown]], *, numeric: Sequence[str] = ()) -> Shown:
    """A table that can be scrolled sideways.

    Args:
        heads: names of its columns.
        rows: what is in them.
        numeric: names of columns of numbers.
    """
    classes = ["numeric" if head in numeric else "" for head in heads]
    head = html.Tr([html.Th(name, className=kind) for name, kind in zip(heads, classes, strict=True)])
    body = [html.Tr([html.Td(cell, className=kind) for cell, kind in zip(row, classes, strict=True)]) for row in rows]
    return html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="scroll-x")
