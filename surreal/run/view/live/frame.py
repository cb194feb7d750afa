"""One picture of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from surreal.run.view.live.describe import describe_troubles
from surreal.run.view.live.processes import process_lines
from surreal.run.view.live.text import (
    ASCII,
    UNICODE,
    Glyphs,
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
from surreal.run.view.reader import Snapshot

_LABEL = 15
_MIN_BAR, _MAX_BAR, _MAX_CURVE = 8, 60, 80
_WIDE = 100
#: Lines for processes, their titles included, where nobody says how many there may be.
_PROCESS_ROWS = 24


@dataclass(frozen=True)
class Picture:
    """What is known of a run at one moment."""

    title: str  #: its id
    elapsed_s: float
    snapshot: Snapshot | None = None
    phase: str = ""  #: what goes on, "" if all is as usual
    phase_s: float = 0.0  #: for how long
    bound: Bound | None = None  #: what ends it first
    goal: float | None = None  #: of the mean return
    goal_left_s: float | None = None  #: time to the goal; None: unknown
    returns: Sequence[float] = ()
    eval_returns: Sequence[float] = ()
    restarts: Mapping[str, int] = field(default_factory=dict)  #: by names of processes
    is_over: bool = False
    footer: str = ""


@dataclass(frozen=True)
class Frame:
    """A view as a rich renderable: as wide as the console, in ASCII where that is all it has.

    Args:
        view: of the run.
        rows: lines at most; None: as many as it takes.
    """

    view: Picture
    rows: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        glyphs = ASCII if options.ascii_only else UNICODE
        yield Text("\n").join(frame_lines(self.view, width=options.max_width, rows=self.rows, glyphs=glyphs))


class _Line(NamedTuple):
    text: Text
    rank: int  #: lines with the largest go first where there is too little room


def frame_lines(view: Picture, *, width: int, rows: int | None = None, glyphs: Glyphs = UNICODE) -> list[Text]:
    """Lines of a picture.

    Args:
        view: of the run.
        width: cells of a line.
        rows: lines at most; None: as many as it takes.
        glyphs: what to draw with.
    """
    head, tail = _head(view, width, glyphs), _tail(view, glyphs)
    if rows is not None:
        kept = {id(line) for line in sorted([*head, *tail], key=lambda line: line.rank)[: max(rows, 1)]}
        head, tail = ([line for line in lines if id(line) in kept] for lines in (head, tail))
    processes: list[Text] = []
    if view.snapshot is not None and not view.is_over:
        room = _PROCESS_ROWS if rows is None else rows - len(head) - len(tail)
        processes = process_lines(view.snapshot.processes, view.restarts, width=width, rows=room, glyphs=glyphs)
    lines = [*(line.text for line in head), *processes, *(line.text for line in tail)]
    return [fitted(line, width, glyphs) for line in lines]


def _head(view: Picture, width: int, glyphs: Glyphs) -> list[_Line]:
    """How the run is."""
    lines = [_Line(_title(view, width, glyphs), 0)]
    if view.bound is not None:
        lines.append(_Line(_progress(view.bound, width, glyphs, is_over=view.is_over), 1))
    if view.phase:
        lines.append(_Line(_labelled("now", f"{view.phase}, {duration(view.phase_s)}", glyphs), 2))
    if (snapshot := view.snapshot) is None:
        return lines
    lines.append(_Line(_numbers(view, snapshot, width), 4))
    facts = [f"best {number(snapshot.best_return)}"] if snapshot.best_return is not None else []
    if view.goal is not None:
        is_near = view.goal_left_s is not None and not view.is_over
        facts.append(
            f"goal {number(view.goal)}" + (f" in about {duration(view.goal_left_s or 0.0)}" if is_near else "")
        )
    lines.append(_Line(_curve("eval return", snapshot.eval_return, view.eval_returns, facts, width, glyphs), 5))
    lines.append(_Line(_curve("return", snapshot.episode_return, view.returns, [], width, glyphs), 6))
    if snapshot.replay_fill is not None:
        lines.append(_Line(_replay(snapshot.replay_fill, width, glyphs), 7))
    if snapshot.samples_per_insert is not None:
        lines.append(_Line(_samples(snapshot.samples_per_insert, snapshot.limiter_position, width, glyphs), 8))
    return lines


def _tail(view: Picture, glyphs: Glyphs) -> list[_Line]:
    """What needs a look."""
    lines = []
    if view.snapshot is not None:
        for kind, text in () if view.is_over else describe_troubles(view.snapshot, besides=view.phase):
            lines.append(_Line(_labelled(kind, text, glyphs, "red" if kind == "hanging" else "yellow"), 3))
        if (last := view.snapshot.last_warning) is not None:
            text = f"{last.name}, {duration(last.age_s)} ago: {last.text}"
            lines.append(_Line(_labelled("last warning", text, glyphs, "yellow"), 3))
    if view.footer:
        lines.append(_Line(Text(view.footer, style="dim"), 0))
    return lines


def _title(view: Picture, width: int, glyphs: Glyphs) -> Text:
    time = duration(view.elapsed_s)
    title = fitted(Text(plain(view.title, glyphs), style="bold"), max(width - len(time) - 2, 8), glyphs)
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


def _numbers(view: Picture, snapshot: Snapshot, width: int) -> Text:
    def count(value: int, per_s: float) -> str:
        return f"{value:,}" + ("" if view.is_over or not value else f" ({rate(per_s)}/s)")

    parts = [
        f"{count(snapshot.env_steps, snapshot.steps_per_s)} env steps",
        f"{count(snapshot.updates, snapshot.updates_per_s)} updates",
        f"version {snapshot.version:,}",
        *([] if snapshot.policy_lag is None else [f"policy lag {snapshot.policy_lag:,.0f}"]),
    ]
    played, wanted = snapshot.eval_progress
    if played < wanted and not view.is_over:
        parts.append(f"evaluation {played} of {wanted}")
    while len(parts) > 1 and len("   ".join(parts)) > width:
        parts.pop()
    return Text("   ".join(parts))


def _curve(
    label: str, newest: float | None, values: Sequence[float], facts: Sequence[str], width: int, glyphs: Glyphs
) -> Text:
    known = [value for value in values if math.isfinite(value)]
    if width >= _WIDE and len(known) > 1:
        facts = [*facts, f"low {number(min(known))}, high {number(max(known))}"]

    def draw(cells: int) -> str:
        return draw_sparkline(values, cells, glyphs).ljust(cells)

    return _with_bar(label, draw, f"{number(newest):>9}", facts, width, style="cyan", longest=_MAX_CURVE)


def _replay(fill: float, width: int, glyphs: Glyphs) -> Text:
    share = f"{fill:4.0%}" if math.isfinite(fill) else "   -"
    return _with_bar("replay", lambda cells: draw_bar(fill, cells, glyphs), share, [], width, style="blue")


def _samples(ratio: float, position: float | None, width: int, glyphs: Glyphs) -> Text:
    value = f"{ratio:.2f}"
    if position is None:
        return _labelled("samples/insert", value, glyphs)
    ends = "agents wait ", " learner waits"

    def draw(cells: int) -> str:
        inner = cells - sum(map(len, ends))
        return draw_band(position, cells, glyphs) if inner < _MIN_BAR else draw_band(position, inner, glyphs).join(ends)

    return _with_bar("samples/insert", draw, value, [], width, style="blue", longest=_MAX_BAR + sum(map(len, ends)))


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
    """A line with a label, something drawn, a value, and further facts; the last facts go first, then the drawing."""
    kept = list(facts)

    def room() -> int:
        return width - _LABEL - len("  ".join(["", value, *kept]))

    while kept and room() < _MIN_BAR:
        kept.pop()
    line = Text.assemble((label.ljust(_LABEL), "dim"))
    if room() >= _MIN_BAR:
        line.append(draw(min(room(), longest)), style)
        line.append("  ")
    line.append("  ".join([value, *kept]))
    return line


def _labelled(label: str, text: str, glyphs: Glyphs, style: str = "") -> Text:
    return Text.assemble((label.ljust(_LABEL), style or "dim"), (plain(text, glyphs), style))
