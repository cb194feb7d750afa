"""`surreal runs compare`: settings that differ, and results, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surreal.base.errors import ConfigError
from surreal.config.yaml_tree import join, parse
from surreal.plugins.recorded.listing import ListedRun, last_round
from surreal.run.process.finding import open_client
from surreal.run.process.run_folder import CONFIG_NAME


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side; each list has a value for each run, or None."""

    runs: list[ListedRun]
    settings: dict[str, list[Any]]  #: settings that differ, by dotted name
    results: dict[str, list[Any]]  #: by name for people

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"runs": [run.label for run in self.runs], "settings": self.settings, "results": self.results}


def compare(runs: Sequence[ListedRun], address: str | None = None) -> Comparison:
    """Compare at least two runs; the Redis at `address` knows those without a folder.

    Raises:
        ConfigError: there are fewer than two, or one has no configuration.
    """
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
    """Read a run's configuration as plain data, whichever version of Surreal wrote it.

    Raises:
        ConfigError: it has none, or it cannot be read.
    """
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
