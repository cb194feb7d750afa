"""The page of all settings, written from the schema: `python -m surreal.config.reference > docs/configuration.md`.

A test compares the page with what this module writes, so that it cannot go stale.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from surreal.config.schema.fields import Section, parse_size
from surreal.config.schema.root import Config

_INTRODUCTION = """# Settings

This page is written by `make docs` from the schema in `surreal/config`; a test compares them.

A configuration is a YAML file or a preset (`surreal presets` lists them). `--set section.setting=value` on the command
line overrides it, and a setting that is left out has its default. Unknown settings, wrong types and conflicts are
reported before anything starts, with the file, the line and the nearest valid name.

- *unset* is written `null` in YAML. Sizes are in bytes, or strings such as `64mb` and `2gb` (`mb` is 1024 x 1024).
- `class` is the import path of a class, built-in or yours; the YAML file's folder is on the import path. `args` are its
  constructor's arguments, which are checked: [the options of the built-in classes](options.md) have a separate page.
- All processes of a run must agree on everything that gives its data meaning: environment, model, lookahead, shards,
  compression. A process that disagrees is refused, and told the difference. Everything else may vary between machines.
"""

_KINDS = {int: "integer", float: "number", str: "string", bool: "`true` or `false`", Any: "anything"}
_UNITS = (("gb", 2**30), ("mb", 2**20), ("kb", 2**10))


def render() -> str:
    """Write the whole page."""
    return "\n".join([_INTRODUCTION, "## The file itself\n", *tables_of(Config)])


def tables_of(root: type[Section]) -> list[str]:
    """Write the settings of a file: its own, then those of each section, each with its heading."""
    parts = [_table(_own_fields(root, root))]
    nested: dict[type[Section], str] = {}
    for name, field in root.model_fields.items():
        for section in sections_of(field.annotation):
            parts += [f"## {name}\n", f"{cell(section.__doc__)}\n", _table(_own_fields(section, root))]
            for key, inner in _own_fields(section, root):
                _collect(f"{name}.{key}", inner.annotation, nested)
    for section, key in nested.items():
        tag = _tag(section)
        title = f"{key}: `type: {tag}`" if tag else f"an entry of {key}"
        parts += [f"### {title}\n", f"{cell(section.__doc__)}\n"]
        fields = [(name, field) for name, field in _own_fields(section, root) if not tag or name != "type"]
        parts += [_table(fields)] if fields else []
    return parts


def setting_names() -> list[tuple[str, str]]:
    """List all settings of fixed names by their dotted path, with the first sentence of what they mean."""
    found = _own_fields(Config, Config)
    for name, field in Config.model_fields.items():
        if typing.get_origin(field.annotation) is list:
            found.append((name, field))
            continue
        for section in sections_of(field.annotation):
            found += [(f"{name}.{key}", inner) for key, inner in _own_fields(section, Config)]
    return [(name, cell(field.description).partition(". ")[0]) for name, field in found]


def _own_fields(section: type[Section], root: type[Section]) -> list[tuple[str, FieldInfo]]:
    """Return the settings of a section by their names in YAML; the root's sections are not included."""
    return [
        (field.alias or name, field)
        for name, field in section.model_fields.items()
        if section is not root or not list(sections_of(field.annotation))
    ]


def _table(fields: Sequence[tuple[str, FieldInfo]]) -> str:
    rows = [(f"`{name}`", *describe(field)) for name, field in fields]
    return table(("setting", "kind", "default", "meaning"), rows)


def describe(field: FieldInfo) -> tuple[str, str, str]:
    """Put a setting into words: its kind, its default, its meaning."""
    kind = _kind(field.annotation, field.metadata)
    return kind, _default(field, is_size=kind == "size"), cell(field.description)


def _kind(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Put an annotation and its limits into words."""
    if typing.get_origin(annotation) is Annotated:
        inner, *more = typing.get_args(annotation)
        limits = [limit for item in more for limit in (item.metadata if isinstance(item, FieldInfo) else [item])]
        return _kind(inner, [*limits, *metadata])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{argument}`" for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        tags = [tag for section in sections_of(annotation) if (tag := _tag(section))]
        others = [argument for argument in arguments if argument is not type(None) and not list(sections_of(argument))]
        if tags:
            return " or ".join([f"mapping, see below ({', '.join(tags)})", *map(_kind, others)])
        return " or ".join(_kind(argument, metadata) for argument in others)
    if origin in (list, tuple):
        return "list" if origin is tuple or arguments[0] is Any else f"list of {_kind(arguments[0])}"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        tag = _tag(annotation)
        return f"mapping, see below ({tag})" if tag else "mapping, see below"
    if any(getattr(item, "func", None) is parse_size for item in metadata):
        return "size"
    return _KINDS.get(annotation, "string") + _limits(metadata)


def _limits(metadata: Sequence[Any]) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    kinds = (annotated_types.Ge, annotated_types.Gt, annotated_types.Le, annotated_types.Lt)
    found = [
        f"{sign} {getattr(item, name)}"
        for item in metadata
        if isinstance(item, kinds)
        for name, sign in signs.items()
        if hasattr(item, name)
    ]
    return "".join(f" {limit}" if index == 0 else f", {limit}" for index, limit in enumerate(found))


def _default(field: FieldInfo, *, is_size: bool) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "required"
    if is_size and isinstance(value, int):
        return next((f"`{value // size}{unit}`" for unit, size in _UNITS if value % size == 0), f"`{value}`")
    return default_cell(value)


def _collect(key: str, annotation: Any, nested: dict[type[Section], str]) -> None:
    for section in sections_of(annotation):
        if section not in nested:
            nested[section] = key
            for field in section.model_fields.values():
                _collect(key, field.annotation, nested)


def sections_of(annotation: Any) -> Iterator[type[Section]]:
    """Find the sections that an annotation can hold."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from sections_of(argument)


def _tag(section: type[Section]) -> str:
    field = section.model_fields.get("type")
    return str(typing.get_args(field.annotation)[0]) if field is not None else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table from cells; texts in them have gone through `cell`."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


def cell(text: str | None) -> str:
    """Bring a text onto one line of a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


def default_cell(value: object) -> str:
    """Write a default as YAML has it."""
    if value is None:
        return "unset"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value, default=repr)}`"


if __name__ == "__main__":
    sys.stdout.write(render())
