"""Options of classes, from their constructors and the `Args` of their docstrings.

A constructor that passes `**options` to its base also accepts the base's options, exactly as in the check of a
configuration's `args`.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

from surreal.base.ranges import AnyCase, describe_range
from surreal.config import accepted_names

_LITERAL = re.compile(r"Literal\[([^]]*)\]")
_NAME = re.compile(r"\b[A-Z]\w+\b")
_ENTRY = re.compile(r" {4}\**(\w+)(?: \([^)]*\))?: +(.*)")


class Option(NamedTuple):
    """One parameter of a constructor."""

    name: str
    annotation: str  #: text in the source, with ranges in words
    default: Any  #: `inspect.Parameter.empty` if there is none
    is_positional: bool
    meaning: str  #: "" if it is not described
    shown_by: type[object]  #: the class itself if its docstring describes the option, else the one that declares it


def options_of(cls: type[object]) -> list[Option]:
    """List the options of a constructor, including those that its `**options` passes to its bases."""
    found = []
    for name, is_positional in accepted_names(cls).items():
        owner = next(owner for owner in cls.__mro__ if name in parameters_of(owner))
        parameter = parameters_of(owner)[name]
        annotation = parameter.annotation
        if not isinstance(annotation, str):
            annotation = "" if annotation is parameter.empty else inspect.formatannotation(annotation)
        meaning = next((texts[name] for each in cls.__mro__ if name in (texts := described(each))), "")
        shown_by = cls if name in described(cls) else owner
        found.append(Option(name, _shown(annotation, owner), parameter.default, is_positional, meaning, shown_by))
    return found


def _shown(annotation: str, owner: type[object]) -> str:
    """Describe the ranges in an annotation, both anonymous and named ones."""
    names = getattr(inspect.unwrap(owner.__init__), "__globals__", {})

    def shown(name: re.Match[str]) -> str:
        named = names.get(name[0])
        if AnyCase in getattr(named, "__metadata__", ()):
            named = typing.get_args(named)[0]
        kind = typing.get_origin(named)
        if kind is typing.Literal:
            return " | ".join(f'"{choice}"' for choice in typing.get_args(named))
        if kind is typing.Annotated:
            return f"{typing.get_args(named)[0].__name__} {describe_range(named)}"
        return name[0]

    annotation = _LITERAL.sub(lambda choices: choices[1].replace(", ", " | ").replace("'", '"'), annotation)
    return _NAME.sub(shown, annotation)


def parameters_of(owner: type[object]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the constructor that a class itself defines."""
    return inspect.signature(owner.__init__).parameters if "__init__" in vars(owner) and owner is not object else {}


def described(owner: type[object]) -> dict[str, str]:
    """Read the `Args` of a class's docstring, and of its constructor's."""
    found: dict[str, str] = {}
    for text in (vars(owner).get("__doc__"), getattr(vars(owner).get("__init__"), "__doc__", None)):
        lines = inspect.cleandoc(text or "").splitlines()
        name = None
        for line in lines[lines.index("Args:") + 1 :] if "Args:" in lines else []:
            if line and not line.startswith(" "):  # the next section
                break
            if (entry := _ENTRY.match(line)) is not None:
                name = entry[1]
                found[name] = entry[2]
            elif name is not None:
                found[name] += f" {line.strip()}"
    return found


def summary(cls: type[object]) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join(plain(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0]).split())


def plain(text: str) -> str:
    """Convert the reStructuredText in gymnasium's docstrings to Markdown."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text).replace("``", "`")
