"""Runs that differ in nothing but their seed belong together: one curve with a band.

Which settings tell groups apart can be named instead; then the runs of a group may be of several environments, each a
stratum of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surreal.base.errors import ConfigError
from surreal.run.view.reading.settings import compare_settings

#: Settings that make no other experiment: seed and name, where it ran, what it kept, and what it told.
_NOT_COMPARED = (
    "seed",
    "name",
    "device",
    "log_level",
    "python_path",
    "version",
    "eval.record_video_every",
    "eval.num_envs",
)
_SECTIONS_NOT_COMPARED = ("redis.", "checkpoint.", "run.")
_MAX_NAMED_SETTINGS = 3
_MAX_VALUE_CHARS = 40


@dataclass(frozen=True)
class Group:
    """Runs that are one experiment."""

    label: str
    members: tuple[int, ...]  #: their places among all runs
    strata: tuple[str, ...]  #: of each, the task


def group_runs(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], by: Sequence[str] | None = None
) -> list[Group]:
    """Sort runs into groups, in the order of their first members.

    Args:
        names: what each run is called by its configuration.
        settings: of each run, as `read_settings` gives them; a run without any is alone.
        by: settings that tell groups apart; None: all but those that make no other experiment; none: one group.

    Raises:
        ConfigError: no run has one of these settings.
    """
    for key in by or ():
        if not any(key in each for each in settings):
            raise ConfigError(f"{key} is a setting of none of these runs", key="--by")
    keys = [row.key for row in compare_settings(settings)] if by is None else list(by)
    keys = [key for key in keys if by is not None or _is_compared(key)]
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


def _is_compared(key: str) -> bool:
    return key not in _NOT_COMPARED and not key.startswith(_SECTIONS_NOT_COMPARED) and not key.endswith(".show_ui")


def _labels(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], keys: Sequence[str], *, is_named_by: bool
) -> list[str]:
    """Names, with the settings that tell groups of one name apart; the settings alone if they were asked for."""
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
    shown = [f"{key.rpartition('.')[2]}={_short(settings.get(key))}" for key in keys[:_MAX_NAMED_SETTINGS]]
    return " ".join([*shown, *(["..."] if len(keys) > _MAX_NAMED_SETTINGS else [])])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}..."
