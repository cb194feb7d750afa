"""Choose runs by names and patterns, by status, in some order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from surreal.base.errors import ConfigError
from surreal.config.problems import nearest
from surreal.plugins.recorded.listing import ListedRun, Status

SortKey = Literal["started", "name", "status", "return", "steps", "time"]

#: Sort keys; the largest numbers come first.
_ORDERS: dict[SortKey, Callable[[ListedRun], Any]] = {
    "started": lambda run: run.started,
    "name": lambda run: run.label,
    "status": lambda run: run.status,
    "return": lambda run: -run.best_return if run.best_return is not None else math.inf,
    "steps": lambda run: -run.env_steps,
    "time": lambda run: -run.time_s,
}


def choose(runs: Sequence[ListedRun], names: Sequence[str]) -> list[ListedRun]:
    """Find the runs that are named, each once, in the order of the names.

    A name is that of a run's folder, its id, a path to its folder, or a pattern with `*`, `?` or `[...]`.

    Raises:
        ConfigError: no run has such a name; the message has the nearest.
    """
    chosen: list[ListedRun] = []
    for name in names:
        found = [run for run in runs if _is_called(run, name)]
        if not found:
            labels = [run.label for run in runs]
            similar = nearest(name, labels)
            there = f"there are {', '.join(labels[-5:])}" if labels else "there is no run at all"
            advice = f"did you mean {similar}?" if similar is not None else there
            raise ConfigError(f"no run is called {name!r}; {advice}", key="NAME")
        chosen += [run for run in found if run not in chosen]
    return chosen


def matching(runs: Sequence[ListedRun], names: Sequence[str], statuses: Sequence[Status]) -> list[ListedRun]:
    """Find runs by name, their own or their configuration's, and by status; an empty list matches all."""
    return [
        run
        for run in runs
        if (not names or any(_is_called(run, name) or fnmatchcase(run.name, name) for name in names))
        and (not statuses or run.status in statuses)
    ]


def in_order(runs: Sequence[ListedRun], key: SortKey, *, is_reversed: bool = False) -> list[ListedRun]:
    """Sort runs; the largest numbers come first, runs without a value last."""
    return sorted(runs, key=_ORDERS[key], reverse=is_reversed)


def best_of(runs: Sequence[ListedRun], count: int) -> list[ListedRun]:
    """Find the runs with the best returns."""
    return [run for run in in_order(runs, "return") if run.best_return is not None][:count]


def _is_called(run: ListedRun, name: str) -> bool:
    if fnmatchcase(run.label, name) or fnmatchcase(run.run, name):
        return True
    return run.folder is not None and "/" in name and fnmatchcase(str(run.folder), str(Path(name).absolute()))
