"""The output of a sweep: a line for each trial that begins or ends, the progress, and the table at the end."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from surreal.plugins.recorded.listing import ListedRun
from surreal.plugins.sweep.folder import Trial

_LINE_INTERVAL_S = 30.0


class SweepView:
    """Shows the progress of a sweep.

    A terminal shows the runs in progress in place; other output gets a line every half minute.
    """

    def __init__(
        self,
        console: Console,
        trials: Sequence[Trial],
        num_trials: int,
        *,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._trials, self._num_trials = console, trials, num_trials
        self._is_quiet, self._clock = is_quiet, clock
        self._started_s = self._line_s = clock()
        self._phase = ""
        self._live: Live | None = None

    def __enter__(self) -> SweepView:
        if self._console.is_terminal and not self._is_quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def begun(self, trial: Trial) -> None:
        settings = ", ".join(f"{key}={_value(value)}" for key, value in trial.settings.items())
        self._say(f"trial {trial.number} begins: {settings or 'nothing varies'}")

    def ended(self, trial: Trial) -> None:
        self._say(f"trial {trial.number} {describe_end(trial)}")

    def show(self, runs: Sequence[ListedRun], phase: str = "") -> None:
        """Show the progress of the runs in progress; `phase` describes anything unusual."""
        if self._live is not None:
            table = Table(show_header=False, box=None)
            table.add_row("sweep", self._summary(phase))
            for run in runs:
                table.add_row(run.label, _describe_run(run))
            self._live.update(table, refresh=True)
            return
        now = self._clock()
        if phase != self._phase or now - self._line_s >= _LINE_INTERVAL_S:
            self._phase, self._line_s = phase, now
            running = "; ".join(f"{run.label} {_describe_run(run)}" for run in runs)
            self._say(self._summary(phase) + (f"  running: {running}" if running else ""))

    def _summary(self, phase: str) -> str:
        ends = [trial.end.status for trial in self._trials if trial.end is not None]
        words = [f"{len(ends)} of {self._num_trials} trials are over"]
        words += [f"{ends.count(status)} {status}" for status in ("pruned", "failed") if status in ends]
        if (ranked := ranking(self._trials)) and ranked[0].end is not None:
            words.append(f"best so far {_number(ranked[0].end.score)} (trial {ranked[0].number})")
        return f"time {self._clock() - self._started_s:.0f} s  {', '.join(words)}" + (f"  {phase}" if phase else "")

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            self._console.print(Text(text), soft_wrap=True)


def ranking(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that have a score, best first; equal ones by number."""
    scored = [(trial.end.score, trial) for trial in trials if trial.end is not None and trial.end.score is not None]
    return [trial for _, trial in sorted(scored, key=lambda pair: (-pair[0], pair[1].number))]


def result_table(trials: Sequence[Trial]) -> Table:
    """Build a table of all trials: the best first, then those without a score, in the order in which they began."""
    ranked = ranking(trials)
    table = Table(box=None, pad_edge=False)
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    has_seeds = any(trial.end is not None and len(trial.end.scores) > 1 for trial in trials)
    for title in ("", "trial", "score", *(["over seeds"] if has_seeds else [])):
        table.add_column(title, justify="right", no_wrap=True)
    for title in short_names(keys).values():
        table.add_column(title, overflow="fold")
    for place, trial in enumerate([*ranked, *(trial for trial in trials if trial not in ranked)], 1):
        end = trial.end
        score = "in progress" if end is None else end.status if end.score is None else _number(end.score)
        cells = [str(place) if trial in ranked else "", str(trial.number), score]
        scores = list(end.scores.values()) if end else []
        spread = f"{_number(min(scores))} .. {_number(max(scores))}" if len(scores) > 1 else "-"
        cells += [spread] if has_seeds else []
        cells += [_value(trial.settings[key]) if key in trial.settings else "-" for key in keys]
        table.add_row(*map(Text, cells))
    return table


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Shorten each setting's name to its last parts, as many as distinguish it from the others."""
    found = {}
    for key in keys:
        parts = key.split(".")
        names = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        found[key] = next((name for name in names if sum(f".{other}".endswith(f".{name}") for other in keys) == 1), key)
    return found


def describe_end(trial: Trial) -> str:
    """Describe how a trial ended, or that it has not."""
    end = trial.end
    if end is None:
        return "has not ended"
    if end.status == "finished":
        return f"scores {_number(end.score)}"
    return end.reason if end.status == "pruned" else f"failed: {end.reason}"


def _describe_run(run: ListedRun) -> str:
    best = "" if run.best_return is None else f", best return {_number(run.best_return)}"
    return f"{run.env_steps:,} env steps{best}" if run.env_steps or best else "starts"


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
