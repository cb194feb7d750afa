"""Ranges of settings, declared where a constructor takes them.

    class Noise:
        @checked
        def __init__(self, scale: Positive, kind: Literal["white", "pink"] = "white", seed: NonNegativeInt = 0) -> None:

The annotation is the only place of the range: `checked` refuses other values when the class is called from Python, the
configuration refuses them when it is loaded (with file and line), and the pages of options print them.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import numbers
import operator
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from annotated_types import Ge, Gt, Le, Lt

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
#: A fraction.
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
ShareBelowOne = Annotated[float, Ge(0), Lt(1)]
PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]


class AnyCase:
    """Marks a choice of words that may be written in any case: `Annotated[Literal["adam", "sgd"], AnyCase]`."""


_HOLDS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    Gt: ("gt", operator.gt),
    Ge: ("ge", operator.ge),
    Lt: ("lt", operator.lt),
    Le: ("le", operator.le),
}
Function = TypeVar("Function", bound=Callable[..., Any])


def describe_range(annotation: Any) -> str:
    """Put the range of an annotation into words, such as "> 0", "in [0, 1]" or "white or pink"; "" if it has none."""
    choices = [str(choice) for choice in _choices(annotation) if choice is not None]
    if choices:
        return " or ".join(choices) if len(choices) < 3 else f"one of {', '.join(choices)}"
    bounds = _bounds(annotation)
    low = next((bound for bound in bounds if isinstance(bound, Ge | Gt)), None)
    high = next((bound for bound in bounds if isinstance(bound, Le | Lt)), None)
    if low is not None and high is not None:
        opening, start = ("(", low.gt) if isinstance(low, Gt) else ("[", low.ge)
        closing, end = (")", high.lt) if isinstance(high, Lt) else ("]", high.le)
        return f"in {opening}{start}, {end}{closing}"
    if low is not None:
        return f"> {low.gt}" if isinstance(low, Gt) else f">= {low.ge}"
    if high is not None:
        return f"< {high.lt}" if isinstance(high, Lt) else f"<= {high.le}"
    return ""


def refusal(value: Any, annotation: Any) -> str:
    """Describe what a value outside of its range must be, such as "it must be > 0"; "" if it is inside.

    Numbers are compared with bounds, those of a list with the bounds of its elements. NaN is outside of all bounds.
    """
    if AnyCase in getattr(annotation, "__metadata__", ()) and isinstance(value, str):
        value = value.lower()
    if (choices := _choices(annotation)) and value not in choices:
        near = difflib.get_close_matches(str(value), [each for each in choices if isinstance(each, str)], n=1)
        return f"it must be {describe_range(annotation)}" + (f"; did you mean {near[0]}?" if near else "")
    if not _is_within(value, _bounds(annotation)):
        return f"it must be {describe_range(annotation)}"
    elements = _elements(annotation)
    if (bounds := _bounds(elements)) and isinstance(value, Sized) and not isinstance(value, str | Mapping):
        values: Any = value
        if not all(_is_within(each, bounds) for each in values):
            return f"each must be {describe_range(elements)}"
    return ""


def checked(function: Function) -> Function:
    """Make a constructor, a dataclass or any function raise `ValueError` outside of its annotations' ranges."""
    if isinstance(function, type):
        function.__init__ = checked(function.__init__)  # type: ignore[misc]
        return function
    signature = inspect.signature(function)

    @functools.cache
    def ranges() -> dict[str, Any]:
        hints = annotations_of(function).items()
        return {name: hint for name, hint in hints if _bounds(hint) or _choices(hint) or _bounds(_elements(hint))}

    @functools.wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name, annotation in ranges().items():
            if name not in given:
                continue
            must = refusal(given[name], annotation)
            if not must and _is_no_number(given[name], annotation):
                must = f"it must be {describe_range(annotation)}"
            if must:
                shown = repr(given[name]) if isinstance(given[name], str) else given[name]
                raise ValueError(f"{name} is {shown}; {must}")
        return function(*args, **kwargs)

    return typing.cast(Function, check)


class Unreadable(NamedTuple):
    """A placeholder for an annotation that cannot be read."""

    reason: str


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function by parameter, `Unreadable` for one that cannot be read.

    Names that only a type checker imports cannot be read, nor can much else that an annotation may be. Each is read
    alone, so that one does not hide the others.
    """
    inner = inspect.unwrap(function)
    found: dict[str, Any] = {}
    for name, annotation in inspect.get_annotations(inner).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found |= typing.get_type_hints(holder, getattr(inner, "__globals__", {}), include_extras=True)
        except Exception as error:
            found[name] = Unreadable(f"{type(error).__name__}: {error}")
    return found


def _is_within(value: Any, bounds: Collection[Any]) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):  # NumPy's numbers as well
        return True
    return all(holds(value, getattr(bound, name)) for bound in bounds for name, holds in (_HOLDS[type(bound)],))


def _is_no_number(value: Any, annotation: Any) -> bool:
    """Whether a value is None or text, where the annotation has bounds and allows only numbers, or numbers and None."""
    if not _bounds(annotation):
        return False
    others = [part for part in _parts(annotation) if not _bounds(part)]
    if value is None:
        return type(None) not in others
    return isinstance(value, str) and all(part is type(None) for part in others)


def _bounds(annotation: Any) -> list[Any]:
    """The bounds of an annotation, or of the one part of a union that has any, as in `Positive | None`."""
    bounds = [bound for bound in getattr(annotation, "__metadata__", ()) if isinstance(bound, Ge | Gt | Le | Lt)]
    if bounds or typing.get_origin(annotation) is Annotated:
        return bounds
    return next((found for part in _parts(annotation) if (found := _bounds(part))), [])


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values that a `Literal` allows, with None in `Literal[...] | None`; () if there are others as well."""
    if AnyCase in getattr(annotation, "__metadata__", ()):
        return _choices(annotation.__origin__)
    if typing.get_origin(annotation) is Literal:
        return typing.get_args(annotation)
    parts = [part for part in _parts(annotation) if part is not type(None)]
    return (*found, None) if len(parts) == 1 and (found := _choices(parts[0])) else ()


def _elements(annotation: Any) -> Any:
    """The annotation of the elements in `Sequence[...]`, or in `Sequence[...] | None`; None for another annotation."""
    if typing.get_origin(annotation) in (list, tuple, Sequence):
        return typing.get_args(annotation)[0]
    return next((found for part in _parts(annotation) if (found := _elements(part)) is not None), None)


def _parts(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else ()
