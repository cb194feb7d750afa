"""One picture of a run: what `surreal run` and `surreal top` show on a terminal.

A pure function of a `Picture` and the space there is. A short terminal drops the least important lines. A narrow one
has shorter bars or none. No meaning is in a color alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from surreal.run.view.live.processes import process_lines
from surreal.run.view.live.text import (
    ASCII,
    UNICODE,
    Glyphs,
    describe_balance,
    describe_troubles,
    draw_band,
    draw_bar,
    draw_sparkline,
    duration,
    fitted,
    number,
    plain,
    rate,
)
from surreal.run.view.live.trend import Bound
from surreal.run.view.run_view import RunView

_LABEL = 15
_MIN_BAR, _MAX_BAR, _MAX_CURVE = 8, 60, 80
_WIDE, _WIDEST = 100, 160
#: Lines for processes, titles included, if the height is unlimited.
_PROCESS_ROWS = 24


@dataclass(frozen=True)
class Picture:
    """Everything that is shown of a run at one moment."""

    title: str  #: its id
    elapsed_s: float
    view: RunView | None = None
    phase: str = ""  #: "" if there is nothing special
    phase_s: float = 0.0  #: duration of the phase so far
    bound: Bound | None = None  #: the limit that ends the run first
    goal: float | None = None  #: mean return at which the run stops
    goal_left_s: float | None = None  #: time to the goal; None: unknown
    returns: Sequence[float] = ()
    eval_returns: Sequence[float] = ()
    restarts: Mapping[str, int] = field(default_factory=dict)  #: by process name
    is_over: bool = False
    footer: str = ""


@dataclass(frozen=True)
class Frame:
    """A picture as a rich renderable: as wide as the console, in ASCII if that is all it has."""

    picture: Picture
    rows: int | None = None  #: maximum number of lines; None: unlimited

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        glyphs = ASCII if options.ascii_only else UNICODE
        yield Text("\n").join(frame_lines(self.picture, width=options.max_width, rows=self.rows, glyphs=glyphs))


class _Line(NamedTuple):
    text: Text
    rank: int  #: lines with the largest rank are dropped first


def frame_lines(picture: Picture, *, width: int, rows: int | None = None, glyphs: Glyphs = UNICODE) -> list[Text]:
    """Draw a picture as lines."""
    head, tail = _head(picture, width, glyphs), _tail(picture, glyphs)
    if rows is not None:
        kept = {id(line) for line in sorted([*head, *tail], key=lambda line: line.rank)[: max(rows, 1)]}
        head, tail = ([line for line in lines if id(line) in kept] for lines in (head, tail))
    processes: list[Text] = []
    if picture.view is not None and not picture.is_over:
        space = _PROCESS_ROWS if rows is None else rows - len(head) - len(tail)
        processes = process_lines(picture.view.processes, picture.restarts, width=width, rows=space, glyphs=glyphs)
    lines = [*(line.text for line in head), *processes, *(line.text for line in tail)]
    return [fitted(line, width, glyphs) for line in lines]


def _head(picture: Picture, width: int, glyphs: Glyphs) -> list[_Line]:
    lines = [_Line(_title(picture, width, glyphs), 0)]
    if picture.bound is not None:
        lines.append(_Line(_progress(picture.bound, width, glyphs, is_over=picture.is_over), 1))
    if picture.phase:
        lines.append(_Line(_labelled("now", f"{picture.phase}, {duration(picture.phase_s)}", glyphs), 2))
    if (view := picture.view) is None:
        return lines
    lines.append(_Line(_numbers(picture, view, width), 4))
    facts = [f"best {number(view.best_return)}"] if view.best_return is not None else []
    if picture.goal is not None:
        left_s = None if picture.is_over else picture.goal_left_s
        facts.append(f"goal {number(picture.goal)}" + ("" if left_s is None else f" in about {duration(left_s)}"))
    lines.append(_Line(_curve("eval return", view.eval_return, picture.eval_returns, facts, width, glyphs), 5))
    lines.append(_Line(_curve("return", view.episode_return, picture.returns, [], width, glyphs), 6))
    if view.replay_fill is not None:
        lines.append(_Line(_replay(view.replay_fill, width, glyphs), 7))
    if view.samples_per_insert is not None:
        lines.append(_Line(_balance(view.samples_per_insert, view.limiter_position, width, glyphs), 8))
    if view.deadlines:
        missed, deadlines = view.missed_deadlines, view.deadlines
        text = f"{missed:,} of {deadlines:,} missed ({missed / deadlines:.2%})"
        text += f"   latency p99 {number(view.latency_p99_ms)} ms"
        lines.append(_Line(_labelled("deadlines", text, glyphs), 8))
    if view.interventions_per_episode is not None:
        share = f"{view.intervention_ratio or 0.0:.1%} of the steps"
        text = f"{number(view.interventions_per_episode)} per episode   {share}"
        lines.append(_Line(_labelled("interventions", text, glyphs), 8))
    if width >= _WIDEST and view.learning:
        numbers = "   ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in view.learning.items())
        lines.append(_Line(_labelled("last update", numbers, glyphs), 9))
    return lines


def _tail(picture: Picture, glyphs: Glyphs) -> list[_Line]:
    lines = []
    if picture.view is not None:
        for kind, text in () if picture.is_over else describe_troubles(picture.view, without=picture.phase):
            lines.append(_Line(_labelled(kind, text, glyphs, "red" if kind == "hanging" else "yellow"), 3))
        if (last := picture.view.last_warning) is not None:
            text = f"{last.name}, {duration(last.age_s)} ago: {last.text}"
            lines.append(_Line(_labelled("last warning", text, glyphs, "yellow"), 3))
    if picture.footer:
        lines.append(_Line(Text(picture.footer, style="dim"), 0))
    return lines


def _title(picture: Picture, width: int, glyphs: Glyphs) -> Text:
    time = duration(picture.elapsed_s)
    title = fitted(Text(plain(picture.title, glyphs), style="bold"), max(width - len(time) - 2, 8), glyphs)
    return Text.assemble(title, " " * max(width - title.cell_len - len(time), 2), time)


def _progress(bound: Bound, width: int, glyphs: Glyphs, *, is_over: bool) -> Text:
    def show(value: float) -> str:
        return {"time": duration, "eval return": number}.get(bound.name, "{:,.0f}".format)(value)

    facts = [f"{show(bound.done)} of {show(bound.total)}"]
    if bound.left_s is not None and not is_over:
        about = "about " if bound.name == "eval return" else ""
        facts.insert(0, f"{about}{duration(bound.left_s)} left")
    share = f"{bound.share:4.0%}" if math.isfinite(bound.share) else "   -"
    return _with_bar(bound.name, lambda cells: draw_bar(bound.share, cells, glyphs), share, facts, width, style="green")


def _numbers(picture: Picture, view: RunView, width: int) -> Text:
    def count(value: int, per_s: float) -> str:
        return f"{value:,}" + ("" if picture.is_over or not value else f" ({rate(per_s)}/s)")

    parts = [
        f"{count(view.env_steps, view.steps_per_s)} env steps",
        f"{count(view.updates, view.updates_per_s)} updates",
        f"version {view.version:,}",
        *([] if view.policy_lag is None else [f"policy lag {view.policy_lag:,.0f}"]),
    ]
    played, wanted = view.eval_progress
    if played < wanted and not picture.is_over:
        parts.append(f"evaluation {played} of {wanted}")
    while len(parts) > 1 and len("   ".join(parts)) > width:
        parts.pop()
    return Text("   ".join(parts))


def _curve(
    label: str, newest: float | None, values: Sequence[float], facts: Sequence[str], width: int, glyphs: Glyphs
) -> Text:
    known = [value for value in values if math.isfinite(value)]
    if len(known) > 1:
        facts = [*facts, f"{number(known[0])} to {number(known[-1])}"]
        facts += [f"low {number(min(known))}, high {number(max(known))}"] if width >= _WIDE else []

    def draw(cells: int) -> str:
        return draw_sparkline(values, cells, glyphs).ljust(cells)

    return _with_bar(label, draw, f"{number(newest):>9}", facts, width, style="cyan", longest=_MAX_CURVE)


def _replay(fill: float, width: int, glyphs: Glyphs) -> Text:
    share = f"{fill:4.0%}" if math.isfinite(fill) else "   -"
    return _with_bar("replay", lambda cells: draw_bar(fill, cells, glyphs), share, [], width, style="blue")


def _balance(ratio: float, position: float | None, width: int, glyphs: Glyphs) -> Text:
    """Show whether acting or learning is ahead: the place in the limiter's band, in words."""
    facts = [f"{ratio:.1f} samples/insert"]
    if position is None:
        return _labelled("balance", facts[0], glyphs)
    words = describe_balance(position)
    return _with_bar("balance", lambda cells: draw_band(position, cells, glyphs), words, facts, width, style="blue")


def _with_bar(
    label: str,
    draw: Callable[[int], str],
    value: str,
    facts: Sequence[str],
    width: int,
    *,
    style: str,
    longest: int = _MAX_BAR,
) -> Text:
    """Make a line of label, drawing, value and facts; a lack of space drops the last facts first, then the drawing."""
    shown = list(facts)

    def space() -> int:
        return width - _LABEL - len("  ".join(["", value, *shown]))

    while shown and space() < _MIN_BAR:
        shown.pop()
    line = Text.assemble((label.ljust(_LABEL), "dim"))
    if space() >= _MIN_BAR:
        line.append(draw(min(space(), longest)), style)
        line.append("  ")
    line.append("  ".join([value, *shown]))
    return line


def _labelled(label: str, text: str, glyphs: Glyphs, style: str = "") -> Text:
    return Text.assemble((label.ljust(_LABEL), style or "dim"), (plain(text, glyphs), style))
