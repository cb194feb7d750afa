"""What `surreal run` shows while it runs: a live table on a terminal, else lines; from its start to its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from surreal.main.launch.view.describe import describe_numbers, describe_troubles, starting_phase
from surreal.main.launch.view.snapshot import Snapshot

_LINE_INTERVAL_S = 5.0


class Progress:
    """Shows the phases and snapshots of a run.

        with Progress(...) as progress:
            progress.phase("starting Redis")
            progress.show(snapshot)
            progress.phase("draining: the learner writes its checkpoint")
            progress.finish(snapshot)

    A terminal gets a table that a thread of its own keeps fresh, whatever the caller waits for; else a phase is a line
    when it begins, and a snapshot is one every few seconds.

    Args:
        title: the run's id.
        console: where to.
        is_quiet: show nothing.
        clock: seconds, monotonic.
    """

    def __init__(
        self, title: str, console: Console, *, is_quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = title
        self._console = console
        self._is_quiet = is_quiet
        self._clock = clock
        self._started_s = clock()
        self._line_s = self._started_s
        self._phase, self._phase_s = "", self._started_s
        self._snapshot: Snapshot | None = None
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._is_quiet:
            self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=4, transient=True)
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

    def show(self, snapshot: Snapshot) -> None:
        """Show the newest state; as a line, only every few seconds."""
        self._snapshot = snapshot
        self.phase(starting_phase(snapshot))
        now = self._clock()
        if now - self._line_s >= _LINE_INTERVAL_S:
            self._line_s = now
            facts = describe_numbers(snapshot, self._elapsed_s) + describe_troubles(snapshot)
            known = [f"{name} {value}" for name, value in facts if value != "-"]
            if len(known) > 1:  # more than the time
                self._line("  ".join(known))

    def finish(self, snapshot: Snapshot) -> None:
        """Leave the last state on the console."""
        elapsed_s = self._elapsed_s
        self.__exit__(None, None, None)
        if not self._is_quiet:
            table = _empty_table(self._title)
            for name, value in describe_numbers(snapshot, elapsed_s, is_over=True):
                table.add_row(name, value)
            self._console.print(table)

    @property
    def _elapsed_s(self) -> float:
        return self._clock() - self._started_s

    def _line(self, text: str) -> None:
        if self._live is None and not self._is_quiet:
            self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def _table(self) -> Table:
        table = _empty_table(self._title)
        snapshot = self._snapshot
        if snapshot is None:
            table.add_row("time", f"{self._elapsed_s:.0f} s")
        else:
            for name, value in describe_numbers(snapshot, self._elapsed_s):
                table.add_row(name, value)
            table.add_row("alive", ", ".join(beat.name for beat in snapshot.alive) or "-")
        if self._phase:
            table.add_row("now", f"{self._phase}, {self._clock() - self._phase_s:.0f} s")
        for name, value in describe_troubles(snapshot, besides=self._phase) if snapshot is not None else ():
            table.add_row(name, value)
        return table


def _empty_table(title: str) -> Table:
    return Table(title=title, title_justify="left", show_header=False, box=None)


def _kind(phase: str) -> str:
    return re.sub(r"\d+", "#", phase)
