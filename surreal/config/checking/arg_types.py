"""Types of the `args` of a class, checked against the annotations of its constructor as far as these are plain.

An annotation such as `int`, `float | None`, `Sequence[int]` or `Literal["a", "b"]` says all about a value from a YAML
file. One that names a class says nothing here: the constructor itself has to judge.
"""

from __future__ import annotations

import collections.abc
import inspect
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

_NAMES: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    Any: "anything",
}
_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
_MAPPINGS = (dict, collections.abc.Mapping)


class Unreadable(NamedTuple):
    """Stands for an annotation that cannot be read."""

    reason: str


def constructor_types(cls: type[object]) -> dict[str, Any]:
    """Give the annotations of a constructor by parameter, `Unreadable` for one that cannot be read.

    Names that only a type checker sees are such, or anything else that a user's annotation may be; each annotation is
    read by itself, so that one that cannot be read takes no other along.
    """
    constructor: Any = cls.__init__
    return {
        name: _read(annotation, getattr(constructor, "__globals__", {}))
        for name, annotation in inspect.get_annotations(constructor).items()
    }


def wrong_type(value: object, annotation: Any) -> str | None:
    """Say what a value must be, "a whole number or null", if it is of another type; None if it fits or nobody can say.

    Args:
        value: from a YAML file.
        annotation: what the parameter is annotated with.
    """
    must = _describe(annotation)
    if must is None:
        return None
    try:
        # As JSON: strict about numbers, text and booleans, while a list may be meant as a tuple.
        TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return must
    except (TypeError, ValueError):  # a date, or keys that are no text: not for JSON to judge
        return None
    return None


def _read(annotation: Any, names: dict[str, Any]) -> Any:
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"it": annotation}), names)["it"]
    except Exception as error:
        return Unreadable(f"{type(error).__name__}: {error}")


def _describe(annotation: Any) -> str | None:
    """Put a plain annotation into words; None for one that is not plain."""
    if not isinstance(annotation, collections.abc.Hashable):  # the parameters of a Callable
        return None
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        parts = [_describe(argument) for argument in arguments]
        return None if None in parts else " or ".join(str(part) for part in parts)
    inner = [_describe(argument) for argument in arguments if argument is not Ellipsis]
    if None in inner:
        return None
    if annotation in _LISTS or origin in _LISTS:
        return "a list"
    if annotation in _MAPPINGS or origin in _MAPPINGS:
        return "a mapping"
    return None
