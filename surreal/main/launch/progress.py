"""What `surreal run` shows while it runs: a live table on a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from surreal.main.launch.snapshot import Snapshot

_LINE_INTERVAL_S = 5.0


def describe(snapshot: Snapshot, elapsed_s: float) -> list[tuple[str, str]]:
    """Names and values to show, in order."""
    best = "" if snapshot.best_return is None else f" (best {snapshot.best_return:.1f})"
    return [
        ("time", f"{elapsed_s:.0f} s"),
        ("env steps", f"{snapshot.env_steps:,} ({snapshot.steps_per_s:,.0f}/s)"),
        ("updates", f"{snapshot.updates:,} ({snapshot.updates_per_s:,.0f}/s)"),
        ("return", _number(snapshot.episode_return, ".1f")),
        ("eval return", _number(snapshot.eval_return, ".1f") + best),
        ("replay", _number(snapshot.replay_fill, ".0%")),
        ("samples/insert", _number(snapshot.samples_per_insert, ".2f")),
        ("policy lag", _number(snapshot.policy_lag, ".0f")),
        ("version", str(snapshot.version)),
    ]


class Progress:
    """Shows snapshots: `with Progress(...) as progress: progress.show(snapshot)`.

    Args:
        title: the run's id.
        console: where to; a terminal gets a live table.
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
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal and not self._is_quiet:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Show the newest state; as a line, only every few seconds."""
        now = self._clock()
        elapsed = now - self._started_s
        if self._live is not None:
            self._live.update(self._table(snapshot, elapsed))
        elif not self._is_quiet and now - self._line_s >= _LINE_INTERVAL_S:
            self._line_s = now
            line = "  ".join(f"{name} {value}" for name, value in describe(snapshot, elapsed))
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _table(self, snapshot: Snapshot, elapsed_s: float) -> Table:
        table = Table(title=self._title, title_justify="left", show_header=False, box=None)
        for name, value in describe(snapshot, elapsed_s):
            table.add_row(name, value)
        alive = [beat.name for beat in snapshot.processes if beat.is_alive()]
        table.add_row("alive", ", ".join(alive) or "starting")
        return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
