"""The panes of logs and of videos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dash import html

from surreal.plugins.dashboard.page.parts import Shown, note, size
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
