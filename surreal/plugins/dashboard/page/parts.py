"""The panes of settings, logs, videos and profiles, and what all panes share: numbers as text, badges, tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dash import html

from surreal.plugins.recorded.files import LogRecord
from surreal.plugins.recorded.listing import ListedRun
from surreal.plugins.recorded.settings import SettingRow, compare_settings

MAX_VIDEOS = 24
#: Maximum number of runs side by side; a wider table is unreadable.
MAX_COLUMNS = 12
_MAX_SHARES_CHARS = 20_000
#: Anything that Dash shows.
Shown = Any

NOTHING = "–"


def settings_table(
    runs: Sequence[ListedRun],
    settings: Sequence[Mapping[str, Any]],
    *,
    contains: str = "",
    only_different: bool = False,
) -> Shown:
    """Compare the results and settings of runs; the settings that differ come first."""
    if not runs:
        return note("Choose runs to see their settings.")
    left_out = len(runs) - MAX_COLUMNS
    runs, settings = runs[:MAX_COLUMNS], settings[:MAX_COLUMNS]
    rows = [row for row in compare_settings(settings) if contains.lower() in row.key.lower()]
    different, same = [row for row in rows if row.differs], [row for row in rows if not row.differs]
    body = [*_results(runs), *_section("differs", different, len(runs))]
    if not only_different or len(runs) == 1:
        body += _section("the same in all" if len(runs) > 1 else "settings", same, len(runs))
    head = html.Tr([html.Th("run"), *(html.Th(run.label) for run in runs)])
    shown: list[Shown] = [
        html.Div(html.Table([html.Thead(head), html.Tbody(body)], className="settings"), className="scroll-x")
    ]
    if not different and len(runs) > 1:
        shown.insert(0, note("These runs have the same settings."))
    if left_out > 0:
        shown.append(note(f"{left_out} more runs are chosen than fit side by side."))
    return html.Div(shown, className="card")


def _results(runs: Sequence[ListedRun]) -> list[Shown]:
    rows = {
        "state": [badge(run.status) for run in runs],
        "best return": [number(run.best_return) for run in runs],
        "env steps": [number(run.env_steps) for run in runs],
        "updates": [number(run.updates) for run in runs],
        "time": [duration(run.time_s) for run in runs],
    }
    return [html.Tr([html.Td(name, className="key"), *map(html.Td, cells)]) for name, cells in rows.items()]


def _section(title: str, rows: Sequence[SettingRow], columns: int) -> list[Shown]:
    if not rows:
        return []
    shown = [html.Tr(html.Th(f"{title} ({len(rows)})", colSpan=columns + 1, className="section"))]
    for row in rows:
        values = [html.Td(_plain(value), className="value") for value in row.values]
        kind = "differs" if row.differs else ""
        shown.append(html.Tr([html.Td(row.key, className="key"), *values], className=kind))
    return shown


def _plain(value: str | None) -> str:
    """Remove JSON's quotes from a text."""
    return NOTHING if value is None else json.loads(value) if value.startswith('"') else value


def log_lines(records: Sequence[LogRecord]) -> Shown:
    """Show a run's log records, the newest at the bottom, where the pane stays."""
    if not records:
        return note("No record fits.")
    # The pane grows upward, so that it shows its end without a script: the newest comes first.
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
    """Show players for a run's videos."""
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


def find_profiles(folder: Path | None) -> list[Path]:
    """List the timelines that `surreal profile -o` left in a run's folder, without links."""
    if folder is None:
        return []
    return [path for path in sorted(folder.glob("profile*.json.gz")) if path.is_file() and not path.is_symlink()]


def profiles(key: str, found: Sequence[Path]) -> Shown:
    """Link to timelines of a run, each with its table of shares."""
    if not found:
        return []
    parts: list[Shown] = [html.H3("Profile")]
    for path in found:
        words, address = f"{path.name}, {size(path.stat().st_size)}", f"/profiles/{key}/{path.name}"
        parts.append(html.A(words, href=address, download=path.name))
        parts.append(html.Span(" opens in ui.perfetto.dev", className="dim"))
        shares = path.with_name(f"{path.name.partition('.')[0]}-shares.txt")
        if shares.is_file() and not shares.is_symlink():
            parts.append(html.Pre(shares.read_text(errors="replace")[:_MAX_SHARES_CHARS], className="shares"))
    return html.Section(parts, className="card")


def number(value: float | None, digits: int = 4) -> str:
    """Format a number: 12,345, 0.01234, 1.2e-07."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def short_number(value: float) -> str:
    """Format a count in little space: 950, 12.3k, 4.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def size(value: float | None) -> str:
    """Format a number of bytes, in MiB."""
    if value is None:
        return NOTHING
    return f"{value / (1 << 20):,.1f} MiB" if value >= 0.05 * (1 << 20) or not value else "under 0.1 MiB"


def duration(seconds: float | None, *, is_short: bool = False) -> str:
    """Format a duration: 12 s, 3 min 20 s, 5 h 12 min, 2 d 3 h; if short: 3 min, 5 h, 2 d."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    whole = max(0, round(seconds))
    for unit, name, part, part_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name}" + (f" {rest} {part_name}" if rest and not is_short else "")
    return f"{whole} s"


def percent(value: float | None) -> str:
    """Format a share, 0 to 1."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.0%}"


def badge(state: str) -> Shown:
    """Show a state in its color."""
    return html.Span(state, className=f"badge state-{state}")


def bar(share: float | None, label: str = "") -> Shown:
    """Show a bar that is filled to a share, 0 to 1, with a label in it."""
    width = 0.0 if share is None or not math.isfinite(share) else min(max(share, 0.0), 1.0)
    fill = html.Div(className="bar-fill", style={"width": f"{100 * width:.1f}%"})
    return html.Div([fill, html.Span(label or percent(share), className="bar-label")], className="bar")


def note(text: str) -> Shown:
    """Show a sentence in place of data."""
    return html.P(text, className="note")


def table(heads: Sequence[str], rows: Sequence[Sequence[Shown]], *, numeric: Sequence[str] = ()) -> Shown:
    """Show a table that scrolls sideways; `numeric` names the columns of numbers."""
    classes = ["numeric" if head in numeric else "" for head in heads]
    head = html.Tr([html.Th(name, className=kind) for name, kind in zip(heads, classes, strict=True)])
    body = [html.Tr([html.Td(cell, className=kind) for cell, kind in zip(row, classes, strict=True)]) for row in rows]
    return html.Div(html.Table([html.Thead(head), html.Tbody(body)]), className="scroll-x")
