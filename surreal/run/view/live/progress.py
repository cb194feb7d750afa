"""The live view of a run."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.segment import ControlType, Segment
from rich.table import Table

from surreal.run.view.live.describe import describe_numbers, describe_troubles, starting_phase
from surreal.run.view.live.frame import Frame, Picture
from surreal.run.view.live.trend import History, RunLimits, nearest_bound, seconds_to_goal
from surreal.run.view.reader import Snapshot

#: Redraws a second: as often as the launcher looks at its run.
_REDRAWS_PER_S = 2


class SteadyLive(Live):
    """Keeps a picture below all that is written to the terminal meanwhile, and removes it at the end.

    Args:
        console: a terminal.
        draw: makes the picture; called by a thread of its own.
    """

    def __init__(self, console: Console, draw: Callable[[], RenderableType]) -> None:
        super().__init__(
            console=console,
            get_renderable=draw,
            refresh_per_second=_REDRAWS_PER_S,
            transient=True,
            # Of a stream that goes elsewhere, nothing can tear the picture.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live_render = _ReflowedRender(console, draw())


class _ReflowedRender(LiveRender):
    """Knows how many lines its picture takes by now."""

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
        """Move to where the picture begins, and clear it."""
        if not self._lengths:
            return Control()
        width = max(self._console.width, 1)
        height = sum(max(1, -(-length // width)) for length in self._lengths)
        erase = (ControlType.ERASE_IN_LINE, 2)
        return Control(ControlType.CARRIAGE_RETURN, erase, *((ControlType.CURSOR_UP, 1), erase) * (height - 1))


_LINE_INTERVAL_S = 5.0


class Progress:
    """Shows the phases and snapshots of a run.

        with Progress(...) as progress:
            progress.phase("starting Redis")
            progress.show(snapshot)
            progress.phase("draining: the learner writes its checkpoint")
            progress.finish(snapshot)

    A terminal gets a picture that a thread of its own keeps fresh, whatever the caller waits for; else a phase is a
    line when it begins, and a snapshot is one every few seconds.

    Args:
        title: the run's id.
        console: where to.
        limits: what ends the run.
        history: what is known of it from before.
        is_quiet: show nothing.
        clock: seconds, monotonic.

    Attributes:
        footer: the picture's last line.
    """

    def __init__(
        self,
        title: str,
        console: Console,
        limits: RunLimits = RunLimits(),  # noqa: B008 - it is immutable
        *,
        history: History | None = None,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.footer = ""
        self._console = console
        self._limits = limits
        self._history = history or History()
        self._is_quiet = is_quiet
        self._clock = clock
        self._started_s = clock()
        self._line_s = self._started_s
        self._phase, self._phase_s = "", self._started_s
        self._view = Picture(title, 0.0, goal=limits.stop_at_return)
        self._live: SteadyLive | None = None

    def __enter__(self) -> Progress:
        if self._console.is_interactive and not self._is_quiet:
            self._live = SteadyLive(self._console, self._frame)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, text: str) -> None:
        """Name what goes on now, "" if all is as usual; numbers in it may change without making it another."""
        is_new = _kind(text) != _kind(self._phase)
        self._phase = text
        if is_new:
            self._phase_s = self._clock()
            if text:
                self._line(f"time {self._elapsed_s:.0f} s  {text}")

    def show(self, snapshot: Snapshot, *, phase: str = "", age_s: float | None = None) -> None:
        """Show the newest state; as a line, only every few seconds.

        Args:
            snapshot: the state.
            phase: what goes on; "" if the snapshot says it.
            age_s: for how long the run goes on, if not since this view began.
        """
        now = self._clock()
        if age_s is not None:
            self._started_s = now - age_s
        self._history.add(snapshot, now)
        self._view = self._view_of(snapshot)
        self.phase(phase or starting_phase(snapshot))
        if now - self._line_s >= _LINE_INTERVAL_S:
            self._line_s = now
            facts = describe_numbers(snapshot, self._elapsed_s) + describe_troubles(snapshot)
            known = [f"{name} {value}" for name, value in facts if value != "-"]
            if len(known) > 1:  # more than the time
                self._line("  ".join(known))

    def redraw(self) -> None:
        """Show what has changed at once."""
        if self._live is not None:
            self._live.refresh()

    def print_frame(self) -> None:
        """Print the picture once, of any height, also where there is no terminal."""
        self._console.print(Frame(self._newest_view()))

    def finish(self, snapshot: Snapshot, *, is_over: bool = True, earlier_s: float = 0.0) -> None:
        """Leave the last state on the console.

        Args:
            snapshot: the state.
            is_over: whether the run has ended; else only this view does.
            earlier_s: how long the run took before it was resumed.
        """
        self._started_s -= earlier_s
        elapsed_s = self._elapsed_s
        is_live = self._live is not None
        self.__exit__(None, None, None)
        if self._is_quiet:
            return
        if is_live:
            self._phase, self.footer = "" if is_over else self._phase, ""
            self._view = replace(self._view_of(snapshot), is_over=is_over)
            self.print_frame()
            return
        table = Table(title=self._view.title, title_justify="left", show_header=False, box=None)
        for name, value in describe_numbers(snapshot, elapsed_s, is_over=is_over):
            table.add_row(name, value)
        self._console.print(table)

    @property
    def _elapsed_s(self) -> float:
        return self._clock() - self._started_s

    def _line(self, text: str) -> None:
        if self._live is None and not self._is_quiet:
            self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def _view_of(self, snapshot: Snapshot) -> Picture:
        history, goal = self._history, self._limits.stop_at_return
        return replace(
            self._view,
            snapshot=snapshot,
            goal_left_s=None if goal is None else seconds_to_goal(tuple(history.rounds), goal),
            bound=nearest_bound(self._limits, snapshot, history, self._elapsed_s),
            returns=history.returns.points,
            eval_returns=history.eval_returns.points,
            restarts=history.restarts,
        )

    def _newest_view(self) -> Picture:
        """What is to be seen now; the thread of the picture calls it, beside everything else here."""
        now = self._clock()
        return replace(
            self._view,
            elapsed_s=now - self._started_s,
            phase=self._phase,
            phase_s=now - self._phase_s,
            footer=self.footer,
        )

    def _frame(self) -> Frame:
        return Frame(self._newest_view(), max(self._console.height - 1, 1))


def _kind(phase: str) -> str:
    return re.sub(r"\d+", "#", phase)
