"""Settings of runs as flat names and values: compared side by side, and grouped into experiments.

People read them, so addresses of Redis, which may contain passwords, and everything that looks like a secret are left
out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from surreal.base.errors import ConfigError
from surreal.config import Config
from surreal.config.yaml_tree import SAFE_LOADER, join
from surreal.run.process.run_folder import CONFIG_NAME

#: A larger file, or one with more settings, is not a configuration of Surreal.
_MAX_BYTES = 1 << 20
_MAX_SETTINGS = 5000
_SECRET_NAME = re.compile(r"(password|passwd|secret|(?<!max_)tokens?$|api_?key|access_key)", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]+(?=@)")
HIDDEN = "***"


class SettingRow(NamedTuple):
    """One setting of several runs."""

    key: str
    values: tuple[str | None, ...]  #: JSON of each run; None: no such setting

    @property
    def differs(self) -> bool:
        return len({*self.values}) > 1


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings in a run's folder by dotted name; empty if they cannot be read."""
    path = folder / CONFIG_NAME
    try:
        if path.stat().st_size > _MAX_BYTES:
            return {}
        plain = yaml.load(path.read_text(encoding="utf-8"), SAFE_LOADER)  # noqa: S506 - a safe loader
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return flat_settings(plain) if isinstance(plain, dict) else {}


def flat_settings(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten plain data of a configuration into dotted names, without secrets."""
    shown = {name: value for name, value in plain.items() if name != "redis"}
    found: dict[str, Any] = {}
    for key, value in _leaves(shown, ""):
        if len(found) >= _MAX_SETTINGS:  # YAML aliases may expand without bound
            break
        found[key] = HIDDEN if _SECRET_NAME.search(key) and value is not None else _without_secret(value)
    return found


def compare_settings(runs: Sequence[Mapping[str, Any]]) -> list[SettingRow]:
    """List the settings of runs; those that differ come first."""

    def text(run: Mapping[str, Any], key: str) -> str | None:
        return json.dumps(run[key], ensure_ascii=False, default=str) if key in run else None

    keys = dict.fromkeys(key for run in runs for key in run)
    rows = [SettingRow(key, tuple(text(run, key) for run in runs)) for key in keys]
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


#: Settings that do not make another experiment: seed and name, place, checkpoints, logging.
_NOT_COMPARED = {"seed", "name", "device", "agent.device", "log_level", "python_path", "version"}
_NOT_COMPARED |= {"eval.record_video_every", "eval.num_envs"}
_SECTIONS_NOT_COMPARED = ("redis.", "checkpoint.", "run.")
_MAX_NAMED_SETTINGS = 3
_MAX_VALUE_CHARS = 40


@dataclass(frozen=True)
class Group:
    """Runs of one experiment."""

    label: str
    members: tuple[int, ...]  #: positions among all runs
    strata: tuple[str, ...]  #: task of each member


def group_runs(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], by: Sequence[str] | None = None
) -> list[Group]:
    """Group runs that differ in nothing but their seed, in the order of their first members.

    Args:
        names: name of each run's configuration.
        settings: settings of each run, from `read_settings`; a run without settings is alone. A run that was recorded
            before a setting existed has its default.
        by: settings that separate groups; None: all that make another experiment; empty: one group. A group may contain
            runs of several environments, each a stratum.

    Raises:
        ConfigError: no run has one of these settings.
    """
    for key in by or ():
        if not any(key in each for each in settings):
            raise ConfigError(f"{key} is a setting of none of these runs", key="--by")
    # A setting that only other runs have has its default.
    defaults = {key: value for key, value in _defaults().items() if any(key in each for each in settings)}
    settings = [_completed(each, defaults) if each else each for each in settings]
    keys = list(by or ())
    if by is None:
        found = [row.key for row in compare_settings(settings) if not row.key.startswith(_SECTIONS_NOT_COMPARED)]
        keys = [key for key in found if key not in _NOT_COMPARED and not key.endswith(".show_ui")]
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, each in enumerate(settings):
        value = tuple(repr(each.get(key)) for key in keys) if each or by is not None else (place,)
        places.setdefault(value, []).append(place)
    firsts = [members[0] for members in places.values()]
    labels = _labels([names[i] for i in firsts], [settings[i] for i in firsts], keys, is_named_by=bool(by))
    return [
        Group(label, tuple(members), tuple(str(settings[i].get("env.id", "")) for i in members))
        for label, members in zip(labels, places.values(), strict=True)
    ]


def _completed(run: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    # No default for a value where the run has a section, nor for parts of a section where the run has a value.
    given = {parent for key in run for parent in _parents(key)}
    missing = {
        key: value
        for key, value in defaults.items()
        if key not in run and key not in given and not any(parent in run for parent in _parents(key))
    }
    return {**run, **missing}


def _parents(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


@cache
def _defaults() -> Mapping[str, Any]:
    plain = Config.model_validate({"version": 1, "env": {"id": "any"}}).model_dump(mode="json", by_alias=True)
    return {key: value for key, value in flat_settings(plain).items() if key != "env.id"}


def _labels(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], keys: Sequence[str], *, is_named_by: bool
) -> list[str]:
    """Label groups by name, and by settings where names are equal; by settings alone if the caller chose them."""
    if is_named_by:
        return [_named(each, keys) for each in settings]
    labels = list(names)
    for name in {*names}:
        same = [i for i, other in enumerate(names) if other == name]
        if len(same) > 1:
            rows = compare_settings([settings[i] for i in same])
            different = [row.key for row in rows if row.differs and row.key in keys]
            for i in same:
                labels[i] = f"{name} {_named(settings[i], different)}".rstrip()
    return labels


def _named(settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    shown = []
    keys = [key for key in keys if settings.get(key) is not None]
    for key in keys[:_MAX_NAMED_SETTINGS]:
        text = str(settings[key])
        text = text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}..."
        shown.append(f"{key.rpartition('.')[2]}={text}")
    return " ".join([*shown, *(["..."] if len(keys) > _MAX_NAMED_SETTINGS else [])])
