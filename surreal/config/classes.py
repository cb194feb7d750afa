"""Classes named in a configuration: found by import path, and their `args` checked before anything is built.

An annotation such as `int`, `float | None`, `Sequence[int]` or `Literal["a", "b"]` describes a value from a YAML file
completely. One that names a class does not: there, the constructor has to judge.
"""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import json
import logging
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from surreal.base.errors import ConfigError
from surreal.base.ranges import Unreadable, annotations_of, refusal
from surreal.config.problems import nearest, show

logger = logging.getLogger(__name__)

T = TypeVar("T")


def add_python_path(folders: Iterable[str]) -> None:
    """Add folders to this process's import path, after all others, so that they hide nothing.

    Every process of a run calls it once with `config.python_path`, before the first class or environment is looked up.
    """
    for folder in folders:
        if folder not in sys.path:
            sys.path.append(folder)


def import_class(path: str, base: type[T], *, key: str = "class", source: str = "") -> type[T]:
    """Find a class by its import path, `package.module.Class`; `key` names its setting in messages, and `source` its
    place. Raises `ConfigError` if there is no such module or class, or the class is not a `base`.
    """
    module_name, _, class_name = path.rpartition(".")

    def wrong(problem: str, advice: str = "") -> ConfigError:
        where = f" ({source})" if source else ""
        return ConfigError(f"{key} is {path!r}{problem}{where}{advice}", key=key, source=source)

    if not module_name:
        raise wrong("; it must be the import path of a class, package.module.Class")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail in any way while it is imported
        raise wrong(f", but {module_name} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, class_name, None)
    if found is None:
        similar = nearest(class_name, [name for name, value in vars(module).items() if inspect.isclass(value)])
        advice = f"; did you mean {module_name}.{similar}?" if similar is not None else ""
        raise wrong(f", but {module_name} has no {class_name}", advice)
    if not inspect.isclass(found) or not issubclass(found, base):
        raise wrong(f", which is not a {base.__module__}.{base.__qualname__}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise wrong(f", which does not override {missing}")
    return found


def check_args(
    cls: type[object],
    args: Mapping[str, Any],
    path: str,
    *,
    given: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
    source_of: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """Check the `args` of a class against its constructor's signature, and behind its `**kwargs` its base's.

    Args:
        cls: the class that will be built.
        args: arguments in the configuration, by name.
        path: dotted key of `args`, such as `learner.args`, for messages.
        given: parameters that other settings and collaborators fill, which `args` may not repeat.
        renamed: names in the configuration to names of parameters, such as `hidden_sizes` to `hiddens`.
        source_of: gives the place of a dotted key, for messages.

    Returns:
        The keyword arguments by the constructor's names.

    Raises:
        ConfigError: for an argument that is unknown, filled elsewhere, missing, or plainly of another type.
    """
    renamed = renamed or {}
    constructors = list(_constructors(cls))
    takes_any = all(has_more for _, _, has_more in constructors) and bool(constructors)
    named: dict[str, inspect.Parameter] = {}
    annotations: dict[str, Any] = {}
    for owner, parameters, _ in reversed(constructors):
        named |= parameters
        annotations |= annotations_of(owner.__init__)
    applicable = {alias: name for alias, name in renamed.items() if name in named or takes_any}
    result: dict[str, Any] = {}

    def wrong(name: str, problem: str, advice: str = "") -> ConfigError:
        key = f"{path}.{name}"
        source = source_of(key) if source_of is not None else ""
        where = f" ({source})" if source else ""
        return ConfigError(f"{key} {problem}{where}{advice}", key=key, source=source)

    for name, value in args.items():
        target = applicable.get(name, name)
        if target in given:
            raise wrong(name, "is set by other settings; leave it out")
        if target not in named and not takes_any:
            free = [*applicable, *(name for name in named if name not in given)]
            similar = nearest(name, free)
            takes = f"it takes {', '.join(free) or 'none'}"
            advice = takes if similar is None else f"did you mean {path}.{similar}?"
            raise wrong(name, f"is not an argument of {cls.__qualname__}", f"; {advice}")
        if target in result:
            raise wrong(name, "is given twice, under two names")
        annotation = annotations.get(target, Any)
        if isinstance(annotation, Unreadable):
            what = "%s.%s is not checked: its type in %s cannot be read (%s)"
            logger.warning(what, path, name, cls.__qualname__, annotation.reason)
        elif must := refusal(value, annotation):
            raise wrong(name, f"is {show(value)}; {must}")
        elif (needed := wrong_type(value, annotation)) is not None:
            raise wrong(name, f"is {show(value)}; {cls.__qualname__} needs {needed}")
        result[target] = value
    own = constructors[0][1] if constructors else {}
    for name, parameter in own.items():
        if parameter.default is inspect.Parameter.empty and name not in result and name not in given:
            raise wrong(name, f"is missing; {cls.__qualname__} needs it")
    return result


def accepted_names(cls: type[object]) -> dict[str, bool]:
    """Parameters of a constructor, by name: whether they can be given by position.

    A constructor with `**kwargs` is taken to hand them on, so its base's parameters count as well.
    """
    names: dict[str, bool] = {}
    for _, parameters, _ in _constructors(cls):
        for name, parameter in parameters.items():
            names.setdefault(name, parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return names


def default_values(cls: type[object]) -> dict[str, Any]:
    """Defaults of a constructor's parameters, by name, with those of its base's behind `**kwargs`."""
    named: dict[str, inspect.Parameter] = {}
    for _, parameters, _ in _constructors(cls):
        named = parameters | named
    empty = inspect.Parameter.empty
    return {name: parameter.default for name, parameter in named.items() if parameter.default is not empty}


def _constructors(cls: type[object]) -> Iterator[tuple[type[object], dict[str, inspect.Parameter], bool]]:
    """Classes whose constructors get arguments, from a class to its bases: parameters, and if there are `**kwargs`."""
    for owner in cls.__mro__:
        if "__init__" not in vars(owner) or owner is object:
            continue
        parameters = list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
        has_more = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
        named = {
            parameter.name: parameter
            for parameter in parameters
            if parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        }
        yield owner, named, has_more
        if not has_more:
            return


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
    """Describe the type that a value must have, such as "a number or null"; None if it fits or cannot be judged."""
    must = _describe(annotation)
    if must is None:
        return None
    try:
        # As JSON: strict about numbers, text and booleans, while a list may be meant as a tuple.
        TypeAdapter(annotation).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return must
    except (TypeError, ValueError):  # a date, or keys that are not text: JSON cannot judge them
        return None
    return None


def _describe(annotation: Any) -> str | None:
    """Put a plain annotation into words; None for one that is not plain."""
    if not isinstance(annotation, collections.abc.Hashable):  # the parameters of a Callable
        return None
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _describe(arguments[0])
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
