"""Load a configuration: a YAML file or a preset with overrides, checked in full; and write one back.

Errors are `ConfigError`s that name the key, its file and line, and the nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from surreal.base.errors import ConfigError
from surreal.config.preset_files import PRESETS, preset_path
from surreal.config.problems import explain, place_of
from surreal.config.schema.conflicts import conflicts
from surreal.config.schema.root import Config
from surreal.config.yaml_tree import join, parse, write

_VERSION = 1
#: Second names of settings, with the name that everything else uses.
_ALIASES = {"run.max_global_step": "run.max_env_steps"}


def load_config(
    source: str | Path, overrides: Sequence[str] = (), *, origins: Mapping[str, str] | None = None
) -> Config:
    """Load and check a configuration.

    Args:
        source: path of a YAML file, or the name of a preset.
        overrides: settings that win over the file, each `key.path=value` with a YAML value.
        origins: sources of overrides, by their keys, if not the command line.

    Raises:
        ConfigError: if anything is wrong: the first problem in full, further ones by their keys.
    """
    path = _find(source)
    label = path.name
    data, places = parse(_read(path, label), label)
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{label} is a {type(data).__name__}; a configuration is a mapping of sections", source=label)
    _check_version(data, places, label)
    _resolve_hyphens(data, places)
    _resolve_aliases(data, places)
    settings = chain.from_iterable(split_section(*parse_override(text)) for text in overrides)
    apply_overrides(data, places, [(_ALIASES.get(key, key), value) for key, value in settings])
    places.update({key: place for key, place in (origins or {}).items() if places.get(key) == SOURCE})
    _check_version(data, places, label)
    data.setdefault("name", re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem).lstrip("-_.")[:64] or "surreal")
    # An empty section, such as `learner:` whose settings are comments, has the defaults.
    data = {name: value for name, value in data.items() if value is not None or name not in Config.model_fields}
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise explain(Config, error, places, label) from error
    config = config.model_copy(update={"python_path": _python_path(config, path)})
    if config.environment.run is not None:
        folder = _beside(path, config.environment.folder or ".")
        config = config.model_copy(update={"environment": config.environment.model_copy(update={"folder": folder})})
    if config.rlx.pages is not None:
        pages = _beside(path, config.rlx.pages)
        config = config.model_copy(update={"rlx": config.rlx.model_copy(update={"pages": pages})})
    for key, problem in conflicts(config):
        place = place_of(key, places, label)
        raise ConfigError(f"{key} {problem} ({place})", key=key, source=place)
    return config.with_sources(places)


def from_plain(plain: dict[str, Any], overrides: Sequence[str], label: str) -> Config:
    """Check a configuration, with overrides, that was loaded from `label` before; changes `plain` in place."""
    places: dict[str, str] = {}
    apply_overrides(plain, places, [parse_override(text) for text in overrides])
    try:
        return Config.model_validate(plain).with_sources(places)
    except ValidationError as error:
        raise explain(Config, error, places, label) from error


def to_yaml(config: Config, *, hide_passwords: bool = False) -> str:
    """Write a configuration in full, so that `load_config` gives the same again.

    A file without passwords, which shows `***`, is for reading, not for running.
    """
    plain = config.model_dump(mode="json", by_alias=True)
    if hide_passwords:
        redis = plain["redis"]
        for key in ("address", "replay_address", "parameter_address"):
            given = redis[key]
            redis[key] = list(map(_without_password, given)) if isinstance(given, list) else _without_password(given)
    return write(plain)


def _find(source: str | Path) -> Path:
    """Find the file to read; text that looks like a path is never taken for a preset."""
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        inside = ", ".join(str(found) for found in sorted(path.glob("*.yaml"))[:3]) or "there is none in it"
        problem = f"{source} is a folder; name a YAML file ({inside}), or resume the run of this folder"
        raise ConfigError(f"{problem}: --resume --run-dir {source}", source=str(source))
    if isinstance(source, Path) or path.suffix in (".yaml", ".yml") or len(path.parts) != 1:
        raise ConfigError(f"{source} does not exist; name a YAML file or a preset", source=str(source))
    return preset_path(source)


def _read(path: Path, label: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{label} cannot be read: {why}", source=label) from error


def _check_version(data: dict[str, Any], places: dict[str, str], label: str) -> None:
    """Refuse another version before anything else: its other keys would only confuse."""
    version = data.get("version", _VERSION)
    if version is True or version != _VERSION:
        place = place_of("version", places, label)
        problem = f"version is {version!r}; this Surreal reads version {_VERSION} ({place})"
        advice = "`surreal config import FILE` brings in one of RELAAX"
        raise ConfigError(f"{problem}; {advice}", key="version", source=place)


def _resolve_hyphens(data: dict[str, Any], places: dict[str, str]) -> None:
    """Read sections whose names have hyphens, as files of RELAAX have them: `relaax-rlx-server`."""
    for name in [name for name in data if isinstance(name, str) and "-" in name]:
        section = name.replace("-", "_")
        if section not in Config.model_fields:
            continue
        if section in data:
            place = places.get(name, "")
            problem = f"{name} and {section} are one section; give one of them ({place})"
            raise ConfigError(problem, key=name, source=place)
        data[section] = data.pop(name)
        for key in [key for key in places if key == name or key.startswith(f"{name}.")]:
            places[section + key[len(name) :]] = places.pop(key)


def _resolve_aliases(data: dict[str, Any], places: dict[str, str]) -> None:
    for alias, key in _ALIASES.items():
        section, _, name = alias.rpartition(".")
        settings = data.get(section)
        if not isinstance(settings, dict) or name not in settings:
            continue
        other = key.rpartition(".")[2]
        if other in settings:
            place = places.get(alias, "")
            raise ConfigError(f"{alias} and {key} are one setting; give one of them ({place})", key=alias, source=place)
        settings[other] = settings.pop(name)
        places[key] = places.pop(alias)


def _beside(path: Path, folder: str) -> str:
    """Return the absolute path of a folder named in a file, so that a copy of the file elsewhere means the same one."""
    return str((path.resolve().parent / Path(folder).expanduser()).resolve())


def _python_path(config: Config, path: Path) -> list[str]:
    folder = path.resolve().parent
    folders = [_beside(path, entry) for entry in config.python_path]
    if folder != PRESETS:
        folders.append(str(folder))
    return list(dict.fromkeys(folders))


def _without_password(address: str | None) -> str | None:
    return None if address is None else re.sub(r"(?<=:)[^:@/]*(?=@)", "***", address)


SOURCE = "--set"


def parse_override(text: str) -> tuple[str, Any]:
    """Split `a.b=value` into its key and its YAML value; raises `ConfigError` for another text."""
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
    """Split a mapping for a whole section into its settings, so that those it does not name stay: all, if it is empty.

    A mapping for a dotted key stays whole, as do the `args` next to a `class`.
    """
    if "." in key or not isinstance(value, dict):
        yield key, value
        return
    for name, inner in value.items():
        is_replaced = name == "args" and "class" in value
        if isinstance(inner, dict) and inner and not is_replaced:
            yield from ((f"{key}.{below}", leaf) for below, leaf in split_section(str(name), inner))
        else:
            yield f"{key}.{name}", inner


def apply_overrides(data: dict[str, Any], places: dict[str, str], overrides: Sequence[tuple[str, Any]]) -> None:
    """Put values into a configuration's data and their places, in place; later ones win, and mappings replace what was
    there. Raises `ConfigError` if a key leads through something that has no keys.
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
        problem = f"{path} is a list of {len(target)}"
        raise ConfigError(f"{problem}; {name} is not one of its numbers ({SOURCE} {key})", key=key, source=SOURCE)
    return int(name)


def _no_keys(path: str, target: Any, key: str) -> ConfigError:
    message = f"{path} is {target!r}, which has no settings ({SOURCE} {key})"
    return ConfigError(message, key=key, source=SOURCE)
