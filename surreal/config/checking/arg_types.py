"""Types of the `args` of a class, checked against the annotations of its constructor as far as these are plain.

An annotation such as `int`, `float | None`, `Sequence[int]` or `Literal["a", "b"]` says all about a value from a YAML
file. One that names a class says nothing here: the constructor itself has to judge.
"""

from __future__ import annotations

import collections.abc
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from surreal.base.ranges import describe_range, is_in_range

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


def wrong_type(value: object, annotation: Any) -> str | None:
    """Say what a value must be, "a whole number or null" or "it must be > 0"; None if it fits or cannot be judged.

    Args:
        value: from a YAML file.
        annotation: what the parameter is annotated with.
    """
    if not is_in_range(value, annotation):
        return f"it must be {describe_range(annotation)}"
    annotation = _without_ranges(annotation)
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


def _without_ranges(annotation: Any) -> Any:
    if typing.get_origin(annotation) is typing.Annotated:
        return annotation.__origin__
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_without_ranges, typing.get_args(annotation)))]  # noqa: UP007 - not known here
    return annotation


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
