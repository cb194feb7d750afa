"""Settings in words, from the schema: for `surreal config explain`, completion in a shell, and the pages of docs/."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from surreal.config.schema.fields import Section, parse_size
from surreal.config.schema.root import Config

_KINDS = {int: "integer", float: "number", str: "string", bool: "`true` or `false`", Any: "anything"}
_UNITS = (("gb", 2**30), ("mb", 2**20), ("kb", 2**10))


def setting_names() -> list[tuple[str, str]]:
    """List all settings of fixed names by their dotted path, with the first sentence of what they mean."""
    found = own_fields(Config, Config)
    for name, field in Config.model_fields.items():
        if typing.get_origin(field.annotation) is list:
            found.append((name, field))
            continue
        for section in sections_of(field.annotation):
            found += [(f"{name}.{key}", inner) for key, inner in own_fields(section, Config)]
    return [(name, cell(field.description).partition(". ")[0]) for name, field in found]


def own_fields(section: type[Section], root: type[Section]) -> list[tuple[str, FieldInfo]]:
    """Return the settings of a section by their names in YAML; the root's sections are not included."""
    return [
        (field.alias or name, field)
        for name, field in section.model_fields.items()
        if section is not root or not list(sections_of(field.annotation))
    ]


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
        tags = [tag for section in sections_of(annotation) if (tag := tag_of(section))]
        others = [argument for argument in arguments if argument is not type(None) and not list(sections_of(argument))]
        if tags:
            return " or ".join([f"mapping, see below ({', '.join(tags)})", *map(_kind, others)])
        return " or ".join(_kind(argument, metadata) for argument in others)
    if origin in (list, tuple):
        return "list" if origin is tuple or arguments[0] is Any else f"list of {_kind(arguments[0])}"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        tag = tag_of(annotation)
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


def sections_of(annotation: Any) -> Iterator[type[Section]]:
    """Find the sections that an annotation can hold."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from sections_of(argument)


def tag_of(section: type[Section]) -> str:
    """Return the value of `type` that chooses a section; "" if it has none."""
    field = section.model_fields.get("type")
    return str(typing.get_args(field.annotation)[0]) if field is not None else ""


def cell(text: str | None) -> str:
    """Bring a text onto one line of a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


def default_cell(value: object) -> str:
    """Write a default as YAML has it."""
    if value is None:
        return "unset"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value, default=repr)}`"
