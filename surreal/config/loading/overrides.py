"""Overrides from the command line, `--set learner.batch_size=64`: the value is YAML, the key a dotted path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from surreal.base.errors import ConfigError
from surreal.config.yaml_tree import join, parse

SOURCE = "--set"


def parse_override(text: str) -> tuple[str, Any]:
    """Split `a.b=value` into its key and its value.

    Raises:
        ConfigError: if it has no key, no `=`, or a value that is no YAML.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key or not all(key.split(".")):
        raise ConfigError(f"{SOURCE} {text} is not KEY=VALUE, as in {SOURCE} learner.batch_size=64", source=SOURCE)
    try:
        data, _ = parse(value, f"{SOURCE} {key}")
    except ConfigError as error:
        raise ConfigError(str(error), key=key, source=SOURCE) from error
    return key, data


def split_section(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Split a mapping for a whole section into its settings, so that those it does not name stay.

    A mapping for a dotted key stays whole, as do the `args` next to a `class`.
    """
    if "." in key or not isinstance(value, dict) or not value:
        yield key, value
        return
    for name, inner in value.items():
        is_replaced = name == "args" and "class" in value
        if isinstance(inner, dict) and inner and not is_replaced:
            yield from ((f"{key}.{below}", leaf) for below, leaf in split_section(str(name), inner))
        else:
            yield f"{key}.{name}", inner


def apply_overrides(data: dict[str, Any], places: dict[str, str], overrides: Sequence[tuple[str, Any]]) -> None:
    """Put values into a configuration's plain data, later ones over earlier ones.

    Args:
        data: nested plain data; changed in place.
        places: where each key came from; changed in place.
        overrides: dotted keys and their values. A mapping replaces what was there.

    Raises:
        ConfigError: if a key leads through something that has no keys.
    """
    for key, value in overrides:
        *parents, last = key.split(".")
        target: Any = data
        path = ""
        for name in parents:
            target, path = _descend(target, name, path, key), join(path, name)
        if isinstance(target, list):
            target[_index(target, last, path, key)] = value
        elif isinstance(target, dict):
            target[last] = value
        else:
            raise _no_keys(path, target, key)
        for known in [known for known in places if known.startswith(f"{key}.")]:
            del places[known]
        places[key] = SOURCE


def _descend(target: Any, name: str, path: str, key: str) -> Any:
    if isinstance(target, list):
        return target[_index(target, name, path, key)]
    if not isinstance(target, dict):
        raise _no_keys(path, target, key)
    if target.get(name) is None:
        target[name] = {}
    return target[name]


def _index(target: list[Any], name: str, path: str, key: str) -> int:
    if not name.isdecimal() or int(name) >= len(target):
        raise ConfigError(
            f"{path} is a list of {len(target)}; {name} is not one of its numbers ({SOURCE} {key})",
            key=key,
            source=SOURCE,
        )
    return int(name)


def _no_keys(path: str, target: Any, key: str) -> ConfigError:
    message = f"{path} is {target!r}, which has no settings of its own ({SOURCE} {key})"
    return ConfigError(message, key=key, source=SOURCE)
