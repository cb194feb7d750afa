"""Builds one object of a class that a configuration names: found, its arguments checked, its refusals explained.

Before anything of a policy's file, or of a run that is watched, is imported, `trusted_config` finds the code outside of
Surreal that it names, and refuses it if a stranger may have written that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from surreal.base.errors import ConfigError
from surreal.config import Config, accepted_names, check_args, import_class
from surreal.config.schema.fields import ClassSection, OwnExploration, Section
from surreal.envs.players.make import GAMES

if TYPE_CHECKING:
    import torch


T = TypeVar("T")


class Setting(NamedTuple):
    """A setting outside of `args` that only the constructor of the section's class can act on."""

    argument: str
    key: str
    harm: str = ""  #: what its loss would do, as the end of a sentence


@dataclass(frozen=True)
class Recipe(Generic[T]):
    """A recipe for building the class of one section."""

    section: str  #: `model`, `agent`, `learner` or `replay`
    base: type[T]  #: what the class must inherit from
    collaborators: int  #: how many objects it gets by position
    #: further parameters that the configuration has values for. Those that a constructor does not have are left out,
    #: so a user's class needs only the parameters it cares for.
    offered: frozenset[str]
    replaceable: frozenset[str] = frozenset()  #: offered names that `args` may give another value for
    renamed: Mapping[str, str] | None = None  #: names in the configuration to names of parameters
    #: settings that are offered as arguments too; a class without the argument refuses the setting, if given
    settings: tuple[Setting, ...] = ()


def check(config: Config, recipe: Recipe[T], offered: Collection[str] | None = None) -> tuple[type[T], dict[str, Any]]:
    """Find `config.<section>.class`, and check its `args` without building anything."""
    section = recipe.section
    settings: ClassSection = getattr(config, section)
    key = f"{section}.class"
    cls = import_class(settings.class_path, recipe.base, key=key, source=config.source_of(key))
    accepted = accepted_names(cls)
    taken = [name for name, is_positional in accepted.items() if is_positional][: recipe.collaborators]
    names = recipe.offered if offered is None else offered
    given = [name for name in names if name in accepted]
    filled = {*taken, *given} - {name for name in recipe.replaceable if name in settings.args}
    args = check_args(
        cls, settings.args, f"{section}.args", given=filled, renamed=recipe.renamed, source_of=config.source_of
    )
    for setting in recipe.settings:
        if setting.argument not in accepted:
            _refuse_given(config, cls, setting)
    return cls, args


def construct(config: Config, recipe: Recipe[T], collaborators: tuple[object, ...], offered: Mapping[str, Any]) -> T:
    """Build `config.<section>.class` with its `args`."""
    cls, args = check(config, recipe, offered)
    accepted = accepted_names(cls)
    given = {name: value for name, value in offered.items() if name in accepted}
    try:
        return cls(*collaborators, **{**given, **args})
    except (TypeError, ValueError) as error:
        name = str(error).partition(" ")[0]  # most begin with the argument that they refuse
        key = f"{recipe.section}.args" + (f".{name}" if name.partition(".")[0] in args else "")
        raise config.refusal(key, f"{recipe.section}: {cls.__qualname__} cannot be made: {error}") from error


def value_of(config: Config, key: str) -> tuple[Any, Any]:
    """Return the value of a setting, by its dotted key, and its default."""
    section, _, name = key.rpartition(".")
    settings = getattr(config, section) if section else config
    return getattr(settings, name), type(settings).model_fields[name].default


def find_device(config: Config, key: str, name: str) -> torch.device:
    """Find the device that the setting `key` names; raises `ConfigError` if this machine lacks it."""
    from surreal.learner.stepping.devices import resolve_device  # brings torch, which a launcher does without

    try:
        return resolve_device(name)
    except ValueError as error:
        raise refused(config, key, str(error).removeprefix("device ")) from error


def refused(config: Config, key: str, problem: str) -> ConfigError:
    """Make the error for a setting: its key, a sentence that begins with its value, and its place."""
    return config.refusal(key, f"{key} {problem}")


def _refuse_given(config: Config, cls: type[object], setting: Setting) -> None:
    """Refuse a setting that a class has no argument for, unless it has its default."""
    value, default = value_of(config, setting.key)
    if value == default:
        return
    shown = value.model_dump(mode="json") if isinstance(value, Section) else value
    name = setting.key.rpartition(".")[2]
    problem = f"is {json.dumps(shown)}, but {cls.__qualname__} has no argument {setting.argument}{setting.harm}"
    raise refused(config, setting.key, f"{problem}; leave {name} out, or set it to {json.dumps(default)}")


#: Registered environments that make another one, of any module, by their arguments.
_BRIDGES = ("GymV21Environment", "GymV26Environment")


def imports_of(config: Config) -> Iterator[tuple[str, str]]:
    """Return each setting that names code outside of Surreal and of what gymnasium has registered, and its value."""
    for name in ("model", "agent"):
        path = getattr(config, name).class_path
        if not path.startswith(f"surreal.{name}."):
            yield f"{name}.class", path
    if (session := config.agent.args.get("session")) is not None:
        yield "agent.args.session", str(session)
    if isinstance(config.agent.exploration, OwnExploration):
        yield "agent.exploration", config.agent.exploration.class_path
    for key, env_id in (("env.id", config.env.id), ("eval.env_id", config.eval.env_id)):
        if env_id is not None and not _is_registered(env_id):
            yield key, env_id
    for number, wrapper in enumerate(config.env.wrappers):
        name = wrapper.class_path or wrapper.name or ""
        if wrapper.class_path is not None or "." in name or ":" in name:
            yield f"env.wrappers.{number}", name
    if config.self_play.reference != "random":
        yield "self_play.reference", config.self_play.reference


def trusted_config(config: Config, what: str, *, trust: bool) -> Config:
    """Return the configuration, without its `python_path` unless the user trusts it."""
    if trust:
        return config
    if named := [f"{value} ({key})" for key, value in imports_of(config)]:
        problem = f"{what} would import {', '.join(named)}: this runs code that its author chose"
        raise ConfigError(f"{problem}; if you trust it, add --trust (in Python: trust=True)", key="--trust")
    return config.model_copy(update={"python_path": []})


def _is_registered(env_id: str) -> bool:
    """Whether it is an id of gymnasium's, or a game of Surreal's."""
    if env_id.startswith("game:"):
        return env_id.removeprefix("game:") in GAMES
    return ":" not in env_id and not env_id.startswith(("pettingzoo.", *_BRIDGES))
