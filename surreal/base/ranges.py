"""Numbers with a range, declared where a constructor takes them.

    class Noise:
        @checked
        def __init__(self, scale: Positive, share: Share = 0.5, seed: NonNegativeInt = 0) -> None: ...

The annotation is the only place of the range: `checked` refuses other numbers when the class is called from Python, the
configuration refuses them when it is loaded (with file and line), and the pages of options print them.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

from annotated_types import Ge, Gt, Le, Lt

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
#: A fraction.
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]

_HOLDS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    Gt: ("gt", operator.gt),
    Ge: ("ge", operator.ge),
    Lt: ("lt", operator.lt),
    Le: ("le", operator.le),
}
Function = TypeVar("Function", bound=Callable[..., Any])


def describe_range(annotation: Any) -> str:
    """Put the range of an annotation into words, such as "> 0" or "in [0, 1]"; "" if it has none."""
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


def is_in_range(value: Any, annotation: Any) -> bool:
    """Tell whether a number is in the range of an annotation; everything else, and no range, passes. NaN never does."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    for bound in _bounds(annotation):
        name, holds = _HOLDS[type(bound)]
        if not holds(value, getattr(bound, name)):
            return False
    return True


def checked(function: Function) -> Function:
    """Make a constructor, or any function, refuse numbers outside the ranges of its annotations.

    Raises:
        ValueError: when it is called: names the first such argument, its value and its range.
    """
    signature = inspect.signature(function)

    @functools.cache
    def ranges() -> dict[str, Any]:
        return {name: hint for name, hint in annotations_of(function).items() if _bounds(hint)}

    @functools.wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name, annotation in ranges().items():
            if name in given and not is_in_range(given[name], annotation):
                raise ValueError(f"{name} is {given[name]}; it must be {describe_range(annotation)}")
        return function(*args, **kwargs)

    return typing.cast(Function, check)


class Unreadable(NamedTuple):
    """Stands for an annotation that cannot be read."""

    reason: str


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Give the annotations of a function by parameter, `Unreadable` for one that cannot be read.

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


def _bounds(annotation: Any) -> list[Any]:
    """The bounds of an annotation, or of the one part of a union that has any, as in `Positive | None`."""
    bounds = [bound for bound in getattr(annotation, "__metadata__", ()) if isinstance(bound, Ge | Gt | Le | Lt)]
    if bounds or typing.get_origin(annotation) is Annotated:
        return bounds
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next((found for part in typing.get_args(annotation) if (found := _bounds(part))), [])
    return []
