"""Builds one object of a class that a configuration names: found, its arguments checked, its refusals explained."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from surreal.config import Config, check_args, import_class
from surreal.config.fields import ClassSection
from surreal.errors import ConfigError

T = TypeVar("T")


def construct(
    config: Config,
    section: str,
    base: type[T],
    positional: tuple[object, ...],
    offered: Mapping[str, Any],
    *,
    replaceable: frozenset[str] = frozenset(),
    renamed: Mapping[str, str] | None = None,
) -> T:
    """Build `config.<section>.class` with its `args`.

    Args:
        config: the whole configuration.
        section: `model`, `agent`, `learner` or `replay`.
        base: what the class must inherit from.
        positional: collaborators, the first parameters of the constructor.
        offered: further values by parameter name. Those that the constructor does not have are left out, so a user's
            class needs only the parameters it cares for.
        replaceable: offered names that `args` may give another value for.
        renamed: names in the configuration to names of parameters.

    Raises:
        ConfigError: the class is not found, does not fit, or refuses its arguments.
    """
    settings: ClassSection = getattr(config, section)
    source = config.source_of(f"{section}.class")
    cls = import_class(settings.class_path, base, key=f"{section}.class", source=source)
    accepted = accepted_names(cls)
    given = {name: value for name, value in offered.items() if name in accepted}
    taken = [name for name in accepted if accepted[name]][: len(positional)]
    filled = {*taken, *given} - {name for name in replaceable if name in settings.args}
    args_source = config.source_of(f"{section}.args")
    args = check_args(cls, settings.args, f"{section}.args", given=filled, renamed=renamed, source=args_source)
    try:
        return cls(*positional, **{**given, **args})
    except (TypeError, ValueError) as error:
        where = f" ({args_source})" if args_source else ""
        raise ConfigError(f"{section}: {cls.__qualname__} cannot be made: {error}{where}", key=section) from error


def accepted_names(cls: type[object]) -> dict[str, bool]:
    """Parameters of a constructor, by name: whether they can be given by position.

    A constructor with `**kwargs` is taken to hand them on, so its base's parameters count as well.
    """
    names: dict[str, bool] = {}
    for owner in cls.__mro__:
        if "__init__" not in vars(owner) or owner is object:
            continue
        parameters = list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
        for parameter in parameters:
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                names.setdefault(parameter.name, True)
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                names.setdefault(parameter.name, False)
        if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
            break
    return names
