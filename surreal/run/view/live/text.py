"""A run in words, numbers and durations as short text, and bars and sparklines in Unicode or ASCII."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.text import Text

from surreal.run.process.roles import LEARNER
from surreal.run.view.live.trend import mean
from surreal.run.view.run_view import RunView


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


#: At less than this share of the limiter's band from its end, one side waits.
_EDGE = 0.1


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


def starting_phase(view: RunView) -> str:
    """Name the phase of a run before its first update; "" after that."""
    if view.updates:
        return ""
    learner = next((beat for beat in view.alive if beat.role == LEARNER.counts_as), None)
    if learner is None:
        return "waiting for the learner to start"
    return learner.waits_for[0] if learner.waits_for else "waiting for the first update"


def describe_numbers(view: RunView, elapsed_s: float, *, is_over: bool = False) -> list[tuple[str, str]]:
    """Return names and values to show, in order; "-" if there is no value yet, no rates when the run is over."""
    rating = f"{view.rating:.0f}" if view.rating is not None else ""
    against = f" ({view.past_versions} past versions, {view.rated_games:,} games)"
    return [
        ("time", f"{elapsed_s:.0f} s"),
        ("env steps", _count(view.env_steps, None if is_over else view.steps_per_s)),
        ("updates", _count(view.updates, None if is_over else view.updates_per_s)),
        *([("skipped updates", f"{view.skipped_updates:,}")] if view.skipped_updates else []),
        ("return", _number(view.episode_return, ".1f")),
        ("best return", _number(view.best_return, ".1f")) if is_over else ("eval return", _evaluation(view)),
        ("replay", _number(view.replay_fill, ".0%")),
        ("samples/insert", _number(view.samples_per_insert, ".2f")),
        ("policy lag", _number(view.policy_lag, ".0f")),
        ("version", str(view.version) if view.version else "-"),
        *([("rating", rating + against)] if rating else []),
    ]


def describe_balance(position: float) -> str:
    """Describe the balance of learning and acting: `position` in the limiter's band, from 0, at which agents wait."""
    if not math.isfinite(position):
        return "-"
    if position <= _EDGE:
        return "agents wait for the learner"
    return "the learner waits for agents" if position >= 1.0 - _EDGE else "learning and acting in balance"


def describe_troubles(view: RunView, *, without: str = "") -> list[tuple[str, str]]:
    """List hanging loops and waits, except `without`: ("waiting", "agent-0, agent-1: waiting for credit")."""
    said: dict[tuple[str, str], list[str]] = {}
    for beat in view.alive:
        if beat.hangs_in:
            said.setdefault(("hanging", beat.hangs_in), []).append(beat.name)
        for text in beat.waits_for:
            if text != without:
                said.setdefault(("waiting", text), []).append(beat.name)
    return [(kind, f"{_names(names)}: {text}") for (kind, text), names in said.items()]


def describe_drain(waiting: Sequence[tuple[str, str]], *, can_hurry: bool = False) -> str:
    """Name the processes that the end of a run waits for, and the last work of each; perhaps how to hurry it."""
    works: dict[str, list[str]] = {}
    for name, work in waiting:
        works.setdefault(work, []).append(name)
    hint = " (Ctrl-C again ends it faster)" if can_hurry else ""
    return "draining: " + "; ".join(f"{_names(names)}: {work}" for work, names in works.items()) + hint


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"


def _evaluation(view: RunView) -> str:
    best = "" if view.best_return is None else f" (best {view.best_return:.1f})"
    played, wanted = view.eval_progress
    under_way = f", {played} of {wanted} episodes played" if played < wanted else ""
    return _number(view.eval_return, ".1f") + best + under_way


def _count(count: int, per_s: float | None) -> str:
    rate = "" if per_s is None else f" ({per_s:,.0f}/s)"
    return f"{count:,}{rate}" if count else "-"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
