"""The live view of `surreal run` and `surreal top`: a picture on a terminal, otherwise lines."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import ControlType, Segment
from rich.table import Table

from surreal.run.view.live.frame import Frame, Picture
from surreal.run.view.live.text import describe_numbers, describe_troubles, starting_phase
from surreal.run.view.live.trend import RunLimits, Trend, nearest_bound, seconds_to_goal
from surreal.run.view.run_view import RunView

#: Redraws per second: as often as the launcher looks at its run.
_REDRAWS_PER_S = 2


class SteadyLive(Live):
    """Keeps a picture below all other output of the terminal, and removes it at the end.

    When a terminal gets narrower, it breaks existing lines. Rich alone moves up as many lines as it drew, and
    would leave the top of the old picture above the new one.

    Args:
        draw: makes the picture; called by another thread.
    """

    def __init__(self, console: Console, draw: Callable[[], RenderableType]) -> None:
        super().__init__(
            console=console,
            get_renderable=draw,
            refresh_per_second=_REDRAWS_PER_S,
            transient=True,
            # A stream that goes elsewhere cannot tear the picture.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live_render = _ReflowedRender(console, draw())


class _ReflowedRender(LiveRender):
    def __init__(self, console: Console, renderable: RenderableType) -> None:
        super().__init__(renderable)
        self._console = console
        self._lengths: list[int] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = super().__rich_console__(console, options)
        segments = [segment for segment in drawn if isinstance(segment, Segment)]
        self._lengths = [Segment.get_line_length(line) for line in Segment.split_lines(segments)]
        yield from segments

    def position_cursor(self) -> Control:
        if not self._lengths:
            return Control()
        width = max(self._console.width, 1)
        height = sum(max(1, -(-length // width)) for length in self._lengths)
        erase = (ControlType.ERASE_IN_LINE, 2)
        return Control(ControlType.CARRIAGE_RETURN, erase, *((ControlType.CURSOR_UP, 1), erase) * (height - 1))


_LINE_INTERVAL_S = 5.0


@dataclass(eq=False)
class Display:
    """Shows the phases of a run and its newest state.

        with Display(...) as progress:
            progress.phase("starting Redis")
            progress.show(view)
            progress.phase("draining: the learner writes its checkpoint")
            progress.finish(view)

    A terminal gets a picture that another thread redraws, whatever the caller waits for. Otherwise, a phase is a line
    when it begins, and a view is a line every few seconds.
    """

    title: str
    console: Console
    limits: RunLimits = field(default_factory=RunLimits)
    trend: Trend = field(default_factory=Trend)  #: what is known from before
    is_quiet: bool = False
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.footer = ""
        self._started_s = self.clock()
        self._line_s = self._started_s
        self._phase, self._phase_s = "", self._started_s
        self._picture = Picture(self.title, 0.0, goal=self.limits.stop_at_return)
        self._live: SteadyLive | None = None

    def __enter__(self) -> Display:
        if self.console.is_interactive and not self.is_quiet:
            self._live = SteadyLive(self.console, self._frame)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, text: str) -> None:
        """Name the current phase, "" if there is nothing special; a change of numbers alone is not a new phase."""
        is_new = _kind(text) != _kind(self._phase)
        self._phase = text
        if is_new:
            self._phase_s = self.clock()
            if text:
                self._line(f"time {self._elapsed_s:.0f} s  {text}")

    def show(self, view: RunView, *, phase: str = "", age_s: float | None = None) -> None:
        """Show the newest state; lines come only every few seconds.

        `phase` "" takes it from the view. `age_s` is the run's age, if it began before this display.
        """
        now = self.clock()
        if age_s is not None:
            self._started_s = now - age_s
        self.trend.add(view, now)
        self._picture = self._picture_of(view)
        self.phase(phase or starting_phase(view))
        if now - self._line_s >= _LINE_INTERVAL_S:
            self._line_s = now
            facts = describe_numbers(view, self._elapsed_s) + describe_troubles(view)
            known = [f"{name} {value}" for name, value in facts if value != "-"]
            if len(known) > 1:  # more than the time
                self._line("  ".join(known))

    def redraw(self) -> None:
        if self._live is not None:
            self._live.refresh()

    def print_frame(self) -> None:
        """Print the picture once, at full height, with or without a terminal."""
        self.console.print(Frame(self._newest_picture()))

    def finish(self, view: RunView, *, is_over: bool = True, earlier_s: float = 0.0) -> None:
        self._started_s -= earlier_s
        elapsed_s = self._elapsed_s
        is_live = self._live is not None
        self.__exit__()
        if self.is_quiet:
            return
        if is_live:
            self._phase, self.footer = "" if is_over else self._phase, ""
            self._picture = replace(self._picture_of(view), is_over=is_over)
            self.print_frame()
            return
        table = Table(title=self._picture.title, title_justify="left", show_header=False, box=None)
        for name, value in describe_numbers(view, elapsed_s, is_over=is_over):
            table.add_row(name, value)
        self.console.print(table)

    @property
    def _elapsed_s(self) -> float:
        return self.clock() - self._started_s

    def _line(self, text: str) -> None:
        if self._live is None and not self.is_quiet:
            self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def _picture_of(self, view: RunView) -> Picture:
        trend, goal = self.trend, self.limits.stop_at_return
        return replace(
            self._picture,
            view=view,
            goal_left_s=None if goal is None else seconds_to_goal(tuple(trend.rounds), goal),
            bound=nearest_bound(self.limits, view, trend, self._elapsed_s),
            returns=trend.returns.points,
            eval_returns=trend.eval_returns.points,
            restarts=trend.restarts,
        )

    def _newest_picture(self) -> Picture:
        """The picture now; also called by the thread that redraws."""
        now = self.clock()
        return replace(
            self._picture,
            elapsed_s=now - self._started_s,
            phase=self._phase,
            phase_s=now - self._phase_s,
            footer=self.footer,
        )

    def _frame(self) -> Frame:
        return Frame(self._newest_picture(), max(self.console.height - 1, 1))


def _kind(phase: str) -> str:
    return re.sub(r"\d+", "#", phase)
