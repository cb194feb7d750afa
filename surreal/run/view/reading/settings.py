"""The settings of runs as flat names and values, and how those of several runs differ.

They are for people to read: addresses of Redis, which may hold passwords, are left out, and so is what looks like one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from surreal.config.yaml_tree import join
from surreal.run.process.run_folder import CONFIG_NAME

#: A larger file, or one with more settings, is none of ours.
_MAX_BYTES = 1 << 20
_MAX_SETTINGS = 5000
_SECRET_NAME = re.compile(r"(password|passwd|secret|(?<!max_)tokens?$|api_?key|access_key)", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]+(?=@)")
HIDDEN = "***"
#: libyaml's, where it is there: a page reads the settings of many runs.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SettingRow(NamedTuple):
    """One setting of several runs."""

    key: str
    values: tuple[str | None, ...]  #: of each run, as JSON; None: it has no such setting

    @property
    def differs(self) -> bool:
        """Whether the runs do not agree."""
        return len({*self.values}) > 1


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings in a run's folder by their dotted names; empty if there are none that can be read."""
    path = folder / CONFIG_NAME
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}
        plain = yaml.load(path.read_text(encoding="utf-8"), _LOADER)  # noqa: S506 - it is a safe one
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return flat_settings(plain) if isinstance(plain, dict) else {}


def flat_settings(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data of a configuration as dotted names and values, without secrets."""
    shown = {name: value for name, value in plain.items() if name != "redis"}
    found: dict[str, Any] = {}
    for key, value in _leaves(shown, ""):
        if len(found) >= _MAX_SETTINGS:  # a file made to grow when it is read
            break
        found[key] = HIDDEN if _SECRET_NAME.search(key) and value is not None else _without_secret(value)
    return found


def compare_settings(runs: Sequence[Mapping[str, Any]]) -> list[SettingRow]:
    """Every setting of some runs, those that differ first, each in the order of the configuration."""
    keys = dict.fromkeys(key for run in runs for key in run)
    rows = [SettingRow(key, tuple(_text(run[key]) if key in run else None for run in runs)) for key in keys]
    return sorted(rows, key=lambda row: not row.differs)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, child in value.items():
            yield from _leaves(child, join(key, name))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for i, child in enumerate(value):
            yield from _leaves(child, join(key, i))
    else:
        yield key, value


def _without_secret(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_secret(item) for item in value]
    return _SECRET_IN_URL.sub(HIDDEN, value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
