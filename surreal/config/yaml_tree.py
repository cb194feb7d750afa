"""YAML with memory: the plain data of a document, and the line each of its keys stands on. Also, how it is written.

Safe tags only, and stricter than PyYAML: a key given twice is an error, `1e-3` is a number as in YAML 1.2, and a date
is text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import yaml

from surreal.base.errors import ConfigError

_MERGE_TAG = "tag:yaml.org,2002:merge"
_FLOAT_TAG = "tag:yaml.org,2002:float"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
_EXPONENT_FLOAT = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$")
_WHOLE_WITH_EXPONENT = re.compile(r"[-+]?\d+[eE]\+?\d{1,2}")


#: PyYAML's safe loader: that of libyaml, which is ten times as fast, if it is installed.
SAFE_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the number syntax of YAML 1.2 and without dates."""


class _FastLoader(SAFE_LOADER):  # type: ignore[misc,valid-type]
    """The same by libyaml, with other messages."""


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float | int:
    text: object = loader.construct_scalar(node)
    if isinstance(text, str) and _WHOLE_WITH_EXPONENT.fullmatch(text):
        mantissa, exponent = text.lower().split("e")
        return int(int(mantissa) * 10 ** int(exponent))  # so that `capacity: 1e5` is a whole number
    return float(loader.construct_yaml_float(node))


class Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which also quotes texts that YAML 1.2 takes for numbers, such as `1e5`."""


for _loader in (_Loader, _FastLoader):
    _loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _loader.add_constructor(_FLOAT_TAG, _construct_float)
for _class in (_Loader, _FastLoader, Dumper):
    _class.add_implicit_resolver(_FLOAT_TAG, _EXPONENT_FLOAT, list("-+0123456789."))


def read_table(package: str, name: str) -> Any:
    """Read a file of plain data that is in a package's folder."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, SAFE_LOADER)  # noqa: S506 - a safe loader


def write(plain: Mapping[str, Any]) -> str:
    """Write plain data so that `parse` reads the same."""
    return yaml.dump(plain, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


def parse(text: str, source: str) -> tuple[Any, dict[str, str]]:
    """Read one YAML document, which `source` names in messages. Return the plain data, and for each dotted key the
    place it came from, such as "app.yaml line 12". Raises `ConfigError` if the text is not YAML, has a key twice, or
    keys that are not text.
    """
    try:
        try:
            return _parse(_FastLoader(text), source)
        except (yaml.YAMLError, ValueError):
            return _parse(_Loader(text), source)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" line {error.problem_mark.line + 1}"
        what = error.problem or error.context or "it cannot be read"
        raise ConfigError(f"{source}{line} is not valid YAML: {what}", source=f"{source}{line}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid YAML: {error}", source=source) from error


def _parse(loader: yaml.SafeLoader, source: str) -> tuple[Any, dict[str, str]]:
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        places: dict[str, str] = {}
        _record(node, "", source, places, ())
        return loader.construct_document(node), places
    finally:
        loader.dispose()


def _record(node: yaml.Node, key: str, source: str, places: dict[str, str], parents: tuple[int, ...]) -> None:
    """Record the lines of all keys below a node, and refuse keys that would be lost."""
    if id(node) in parents:
        raise ConfigError(f"{key} contains itself ({_place(node, source)})", key=key, source=_place(node, source))
    parents = (*parents, id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            path = join(key, index)
            places[path] = _place(item, source)
            _record(item, path, source, places, parents)
    if isinstance(node, yaml.MappingNode):
        _record_mapping(node, key, source, places, parents)


def _record_mapping(
    node: yaml.MappingNode, key: str, source: str, places: dict[str, str], parents: tuple[int, ...]
) -> None:
    seen: dict[str, str] = {}
    for name_node, value_node in node.value:
        place = _place(name_node, source)
        if name_node.tag == _MERGE_TAG:
            # The mapping's own keys are recorded later and win.
            for merged in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                _record(merged, key, source, places, parents)
            continue
        if not isinstance(name_node, yaml.ScalarNode) or name_node.tag != "tag:yaml.org,2002:str":
            text = getattr(name_node, "value", "?")
            raise ConfigError(f"{join(key, text)}: a key must be text; quote it ({place})", key=key, source=place)
        name = name_node.value
        path = join(key, name)
        if name in seen:
            raise ConfigError(
                f"{path} is given twice ({seen[name]} and {place}); keep one of them", key=path, source=place
            )
        seen[name] = place
        places[path] = place
        _record(value_node, path, source, places, parents)


def _place(node: yaml.Node, source: str) -> str:
    return f"{source} line {node.start_mark.line + 1}"


def join(key: str, name: object) -> str:
    """Add a name to a dotted key."""
    return f"{key}.{name}" if key else str(name)
