"""Whether the trials of a sweep make sense, as far as that can be known before the first of them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.plugins.sweep.definition.loading import Definition
from surreal.plugins.sweep.definition.space import combinations

#: Stands for the Redis of a sweep, which its runs are told when it has been started.
_ADDRESS = "redis.address=unix:///redis.sock"


def check_settings(definition: Definition) -> list[dict[str, Any]]:
    """Check what is the same in all runs, and what varies.

    Returns:
        Settings of trials, few, which together have all that varies: for checks that cost more.

    Raises:
        ConfigError: a combination of a grid makes no sense, or a setting of a search cannot have such a value.
    """
    if definition.run_config({}).redis.address is None:  # settings of a server of the run's own are refused
        load_config(definition.base, (*definition.overrides({}), _ADDRESS))
    if definition.config.search is not None:
        return _check_search(definition)
    settings = combinations(definition.space)
    for each in settings:
        definition.run_config(each)
    return [settings[0], *settings[1:][-1:]]


def _check_search(definition: Definition) -> list[dict[str, Any]]:
    good: list[dict[str, Any]] = [{}]
    for key, dimension in definition.space.items():
        for value in dimension.ends():
            try:
                definition.run_config({key: value})
            except ConfigError as error:
                if isinstance(error.__cause__, ValidationError):
                    raise
                continue  # a conflict with another setting, which may vary too; a trial that has it fails
            good.append({key: value})
    return good
