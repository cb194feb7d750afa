"""Choose runs by names and patterns, by status, in some order; compare their settings and results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from surreal.base.errors import ConfigError
from surreal.config.problems import nearest
from surreal.config.yaml_tree import join, parse
from surreal.plugins.recorded.listing import ListedRun, Status, last_round
from surreal.run.process.finding import open_client
from surreal.run.process.run_folder import CONFIG_NAME

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


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side; each list has a value for each run, or None."""

    runs: list[ListedRun]
    settings: dict[str, list[Any]]  #: settings that differ, by dotted name
    results: dict[str, list[Any]]  #: by name for people

    def to_json(self) -> dict[str, Any]:
        return {"runs": [run.label for run in self.runs], "settings": self.settings, "results": self.results}


def compare(runs: Sequence[ListedRun], address: str | None = None) -> Comparison:
    """Compare at least two runs; the Redis at `address` knows those without a folder."""
    if len(runs) < 2:
        raise ConfigError(f"{len(runs)} run to compare; name at least two", key="NAME")
    flat = [flattened(settings_of(run, address)) for run in runs]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    side_by_side = {key: [settings.get(key) for settings in flat] for key in keys}
    differing = {key: values for key, values in side_by_side.items() if any(value != values[0] for value in values)}
    last = [None if run.folder is None else last_round(run.folder) for run in runs]
    results: dict[str, list[Any]] = {
        "status": [run.status for run in runs],
        "reason": [run.reason for run in runs],
        "best return": [run.best_return for run in runs],
        "last return": [None if line is None else line.get("mean_return") for line in last],
        "env steps": [run.env_steps for run in runs],
        "updates": [run.updates for run in runs],
        "time_s": [round(run.time_s, 1) for run in runs],
    }
    return Comparison(list(runs), differing, results)


def settings_of(run: ListedRun, address: str | None = None) -> dict[str, Any]:
    """Read a run's configuration as plain data, whichever version of Surreal wrote it."""
    if run.folder is None:
        from surreal.run.process import registry

        if address is None:
            raise ConfigError(f"run {run.run} has no folder here; name its Redis with --redis")
        with open_client(address, run.run) as client:
            return registry.plain_config(registry.stored_config(client))
    path = run.folder / CONFIG_NAME
    try:
        data, _ = parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"run {run.label} has no configuration that can be read: {error}") from error
    return data if isinstance(data, dict) else {}


def flattened(settings: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """Flatten settings into dotted names; a list is one value."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = join(key, name)
        found.update(flattened(value, inner) if isinstance(value, dict) and value else {inner: value})
    return found
