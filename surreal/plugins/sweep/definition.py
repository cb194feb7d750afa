"""Read and check the file of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.config.problems import explain, place_of, show
from surreal.config.schema.fields import Section
from surreal.config.yaml_tree import parse
from surreal.plugins.sweep.schema import (
    MAX_COMBINATIONS,
    Choice,
    Dimension,
    Range,
    SweepConfig,
    combinations,
    num_combinations,
)

#: Stands for the Redis of a sweep, whose address is known only after it has been started.
_ADDRESS = "redis.address=unix:///redis.sock"


def check_settings(definition: Definition) -> list[dict[str, Any]]:
    """Check the settings of all trials; return those of a few that together have every setting that varies. Raises
    `ConfigError` if a combination of a grid is invalid, or a setting of a search cannot have such a value.
    """
    if definition.run_config({}).redis.address is None:  # refuse settings of a run's embedded Redis
        load_config(definition.base, (*definition.overrides({}), _ADDRESS))
    if definition.config.search is None:
        settings = combinations(definition.space)
        for each in settings:
            definition.run_config(each)
        return [settings[0], *settings[1:][-1:]]
    good: list[dict[str, Any]] = [{}]
    for key, dimension in definition.space.items():
        for value in dimension.ends():
            try:
                definition.run_config({key: value})
            except ConfigError as error:
                if isinstance(error.__cause__, ValidationError):
                    raise
                continue  # a conflict with another setting, which may also vary; a trial with the conflict fails
            good.append({key: value})
    return good


S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Definition:
    """A checked sweep."""

    config: SweepConfig
    base: str  #: configuration that the runs start from: a preset or a path
    space: Mapping[str, Dimension]  #: values of each setting that varies
    text: str  #: the file's content
    places: Mapping[str, str] = field(default_factory=dict, compare=False)  #: line in the file of each dotted key

    @property
    def num_trials(self) -> int:
        """Number of trials, unless too many fail."""
        return self.config.search.trials if self.config.search is not None else num_combinations(self.space)

    def overrides(self, settings: Mapping[str, Any], seed: int | None = None) -> tuple[str, ...]:
        """Return the overrides of `base`'s settings in a trial's runs."""
        given = {**self.config.fixed, **settings, **({} if seed is None else {"seed": seed})}
        return tuple(f"{key}={json.dumps(value)}" for key, value in given.items())  # YAML reads JSON

    def run_config(self, settings: Mapping[str, Any], *, base: str | None = None) -> Config:
        """Load the configuration of a trial's runs; `base` is a copy of the base.

        Raises:
            ConfigError: the settings do not fit; it names the sweep's file and line.
        """
        origins = {
            key: self.places.get(f"{section}.{key}", "")
            for section, keys in (("set", self.config.fixed), (self.space_key, settings))
            for key in keys
        }
        config = load_config(base or self.base, self.overrides(settings), origins=origins)
        if not any((config.run.max_env_steps, config.run.max_time_s, config.learner.max_updates)):
            raise ConfigError(
                "the runs of a sweep need an end: set run.max_env_steps, run.max_time_s or learner.max_updates",
                key="run.max_env_steps",
            )
        if not config.eval.enabled:
            where = config.place_of("eval.enabled")
            raise ConfigError(f"eval.enabled is false{where}; a sweep compares evaluations", key="eval.enabled")
        return config

    @property
    def space_key(self) -> str:
        """Section of the file with the settings that vary."""
        return "search.space" if self.config.search is not None else "grid"


def load_definition(path: Path) -> Definition:
    """Read a sweep's file.

    Raises:
        ConfigError: the file is wrong; it names the line.
    """
    label = path.name
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"{path} cannot be read: {why}", source=label) from error
    data, places = parse(text, label)
    if not isinstance(data, dict):
        raise ConfigError(f"{label} is {show(data)}; a sweep is a mapping with base and grid or search", source=label)
    data.setdefault("name", path.stem)
    config = _section(SweepConfig, data, "", places, label)
    key, space = ("grid", config.grid or {}) if config.search is None else ("search.space", config.search.space)
    _refuse_keys(config, key, space, places, label)
    dimensions = {name: _dimension(value, f"{key}.{name}", places, label) for name, value in space.items()}
    neighbor = path.parent / Path(config.base).expanduser()
    base = str(neighbor) if neighbor.is_file() else config.base
    definition = Definition(config, base, dimensions, text, places)
    if config.search is None and definition.num_trials > MAX_COMBINATIONS:
        raise ConfigError(
            f"grid has {definition.num_trials:,} combinations; at most {MAX_COMBINATIONS:,} are tried: "
            f"give fewer values, or use search ({place_of('grid', places, label)})",
            key="grid",
        )
    return definition


def _dimension(value: Any, key: str, places: Mapping[str, str], label: str) -> Dimension:
    place = place_of(key, places, label)
    if isinstance(value, list):
        if not value:
            raise ConfigError(f"{key} is an empty list; name at least one value ({place})", key=key, source=place)
        return Choice(tuple(value))
    if not isinstance(value, dict):
        raise ConfigError(
            f"{key} is {show(value)}; it must be a list of values, or a range such as "
            f"{{low: 0.1, high: 10, log: true}}; a setting that does not vary belongs under set ({place})",
            key=key,
            source=place,
        )
    found = _section(Range, value, key, places, label)
    is_grid = key.startswith("grid.")
    if is_grid and found.count is None:
        raise ConfigError(f"{key}.count is missing: the number of values to try ({place})", key=key, source=place)
    idle = "step" if is_grid else "count"
    if getattr(found, idle) is not None:
        other = "search" if is_grid else "grid"
        problem = f"{key}.{idle} is only for a {other}; leave it out ({place_of(f'{key}.{idle}', places, label)})"
        raise ConfigError(problem, key=f"{key}.{idle}", source=place)
    return found


def _section(kind: type[S], value: Any, key: str, places: Mapping[str, str], label: str) -> S:
    """Check the value at a key of the file."""
    inner = {name.removeprefix(f"{key}."): place for name, place in places.items() if name.startswith(f"{key}.")}
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        if not key:
            raise explain(kind, error, places, label) from error
        found = explain(kind, error, inner, place_of(key, places, label))
        raise ConfigError(f"{key}: {found}", key=f"{key}.{found.key}", source=found.source) from error


def _refuse_keys(
    config: SweepConfig, key: str, space: Mapping[str, Any], places: Mapping[str, str], label: str
) -> None:
    """Refuse settings that the sweep sets itself, and those that would be misunderstood."""
    for section, given in (("set", config.fixed), (key, space)):
        for name, value in given.items():
            at = f"{section}.{name}"
            problem = ""
            if name == "seed":
                problem = f"{at} is set by the sweep: list the seeds under `seeds`"
            elif section == key and name.split(".")[0] == "redis":
                problem = f"{at} cannot vary: all runs of a sweep share one Redis"
            elif section == key and name in config.fixed:
                problem = f"{name} is under set and under {key}; keep one of them"
            elif "." not in name and isinstance(value, dict):
                inner = next(iter(value), "key")
                problem = f"{at} is a section; name its settings with dots, such as `{name}.{inner}: ...`"
            if problem:
                place = place_of(at, places, label)
                raise ConfigError(f"{problem} ({place})", key=at, source=place)
