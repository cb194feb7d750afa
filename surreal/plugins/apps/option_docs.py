"""Writes docs/options.md, the options of all classes, from their constructors and the `Args` of their docstrings.

    python -m surreal.plugins.apps.option_docs

`make docs` writes the page, and a test compares them. A constructor that passes `**options` to its base also accepts
the base's options, exactly as in the check of a configuration's `args`.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from importlib.resources import files
from string import Template
from types import ModuleType
from typing import Any, NamedTuple

from gymnasium.envs.registration import load_env_creator

import surreal.agent
import surreal.learner
import surreal.model
import surreal.replay
from surreal.base.ranges import AnyCase, describe_range
from surreal.config import accepted_names
from surreal.config.reference import cell, default_cell, table
from surreal.envs.ids import find_env
from surreal.envs.wrappers.named import WrapperSpec, find_wrapper, wrapper_names
from surreal.run.build.acting import AGENT, MODEL
from surreal.run.build.construct import Recipe
from surreal.run.build.learning import LEARNER, REPLAY

_ENV_IDS = ("surreal/Bandit-v0", "surreal/BitFlip-v0", "surreal/ViZDoom-v0", "surreal/DeepMindLab-v0")
_PARTS: tuple[tuple[ModuleType, Recipe[Any]], ...] = (
    (surreal.model, MODEL),
    (surreal.agent, AGENT),
    (surreal.learner, LEARNER),
    (surreal.replay, REPLAY),
)
_MARKS = ("yes", "override", "no")
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


def render() -> str:
    """Return the whole page."""
    parts: list[str] = []
    for module, recipe in _PARTS:
        parts.append(f"## {recipe.section}\n")
        titles = {cls: f"`{module.__name__}.{cls.__name__}`" for cls in public_classes(module, recipe.base)}
        bases = dict.fromkeys(option.shown_by for cls in titles for option in options_of(cls))
        titles = {base: f"Options of `{base.__name__}`" for base in bases if base not in titles} | titles
        for cls, title in titles.items():
            parts += [f"### {title}\n", *class_text(cls, recipe, titles)]
    page = files(__package__).joinpath("options.md").read_text(encoding="utf-8")
    tables = {"classes": parts, "wrappers": _wrappers(), "environments": _environments()}
    return Template(page).substitute({name: "\n".join(lines) for name, lines in tables.items()})


def public_classes(module: ModuleType, base: type[object]) -> Iterator[type[object]]:
    """Find the classes of `module.__all__` that a configuration may name."""
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found):
            yield found


def options_of(cls: type[object]) -> list[Option]:
    """List the options of a constructor, including those that its `**options` passes to its bases."""
    found = []
    for name, is_positional in accepted_names(cls).items():
        owner = next(owner for owner in cls.__mro__ if name in _parameters(owner))
        parameter = _parameters(owner)[name]
        annotation = parameter.annotation
        if not isinstance(annotation, str):
            annotation = "" if annotation is parameter.empty else inspect.formatannotation(annotation)
        meaning = next((texts[name] for each in cls.__mro__ if name in (texts := _described(each))), "")
        shown_by = cls if name in _described(cls) else owner
        found.append(Option(name, _shown(annotation, owner), parameter.default, is_positional, meaning, shown_by))
    return found


def class_text(cls: type[object], recipe: Recipe[Any], titles: Mapping[type[object], str]) -> Iterator[str]:
    """Yield a table of the options that a class declares or describes, and the names of inherited options."""
    options = options_of(cls)
    collaborators = [option.name for option in options if option.is_positional][: recipe.collaborators]
    options = [option for option in options if option.name not in collaborators]
    own = {option.name for option in options if option.shown_by is cls or option.name in _parameters(cls)}
    if not inspect.isabstract(cls):
        yield f"{summary(cls)} In Python: `{cls.__name__}({', '.join([*collaborators, '...'])})`.\n"
    aliases = {name: alias for alias, name in (recipe.renamed or {}).items()}
    rows = []
    for option in options:
        if option.name in own:
            alias = aliases.get(option.name)
            name = f"`{option.name}`" if alias is None else f"`{alias}` (`{option.name}` in Python)"
            offered = "override" if option.name in recipe.replaceable else "no"
            mark = offered if option.name in recipe.offered else "yes"
            rows.append((name, mark, *_cells(option)))
    if rows:
        rows.sort(key=lambda row: _MARKS.index(row[1]))
        yield table(("option", "in `args`", "type", "default", "meaning"), rows)
    inherited = [option for option in options if option.name not in own]
    for base in dict.fromkeys(option.shown_by for option in inherited):
        names = ", ".join(f"`{option.name}`" for option in inherited if option.shown_by is base)
        anchor = re.sub(r"[^\w-]", "", titles[base].lower().replace(" ", "-"))
        yield f"Inherited, see [{titles[base]}](#{anchor}): {names}.\n"
    rest = _described(cls).get("options", "")
    if len(rest.split()) > 4:  # more than "as in the base"
        yield f"Inherited options are {cell(rest)}\n"


def _wrappers() -> Iterator[str]:
    for name in wrapper_names():
        cls = find_wrapper(name)
        if inspect.isclass(cls):
            only = " For training only." if WrapperSpec(name).is_training_only else ""
            yield f"### `{name}`\n\n{summary(cls)}{only}\n"
            rows = [(f"`{option.name}`", *_cells(option)) for option in options_of(cls)[1:]]
            if rows:
                yield table(("option", "type", "default", "meaning"), rows)


def _environments() -> Iterator[str]:
    for env_id in _ENV_IDS:
        cls: Any = load_env_creator(str(find_env(env_id).entry_point))
        yield f"### `{env_id}`\n\n{summary(cls)}\n"
        rows = [(f"`{option.name}`", *_cells(option)) for option in options_of(cls) if option.name != "render_mode"]
        yield table(("option", "type", "default", "meaning"), rows)


def _cells(option: Option) -> tuple[str, str, str]:
    kind = f"`{cell(option.annotation)}`" if option.annotation else ""
    default = "required" if option.default is inspect.Parameter.empty else default_cell(option.default)
    return kind, default, cell(_plain(option.meaning))


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


def _parameters(owner: type[object]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(owner.__init__).parameters if "__init__" in vars(owner) and owner is not object else {}


def _described(owner: type[object]) -> dict[str, str]:
    """Read the `Args` of a class's docstring, and of its constructor's."""
    found: dict[str, str] = {}
    for text in (vars(owner).get("__doc__"), getattr(vars(owner).get("__init__"), "__doc__", None)):
        lines = inspect.cleandoc(text or "").splitlines()
        name = None
        for line in lines[lines.index("Args:") + 1 :] if "Args:" in lines else []:
            if line and not line.startswith(" "):  # the next section
                break
            entry = _ENTRY.match(line)
            if entry is not None:
                name = entry[1]
                found[name] = entry[2]
            elif name is not None:
                found[name] += f" {line.strip()}"
    return found


def summary(cls: type[object]) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join(_plain(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0]).split())


def _plain(text: str) -> str:
    """Convert the reStructuredText in gymnasium's docstrings to Markdown."""
    return re.sub(r":\w+:`([^`]*)`", r"`\1`", text).replace("``", "`")


if __name__ == "__main__":
    sys.stdout.write(render())
