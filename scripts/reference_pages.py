"""Write the parts of pages in docs/ that the code knows: settings, options, commands, faults, keys.

    python scripts/reference_pages.py

A part is between two comments, `<!-- written by make docs: NAME -->` and `<!-- end -->`; the rest of its page is
written by hand. A test compares them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from gymnasium.envs.registration import load_env_creator
from pydantic.fields import FieldInfo

import surreal.agent
import surreal.learner
import surreal.model
import surreal.replay
from surreal.base.system.command_line import make_command
from surreal.base.system.command_line import options_of as options_of_command
from surreal.cli.options import Panel
from surreal.cli.program import app
from surreal.config import Config
from surreal.config.reference import cell, default_cell, describe, own_fields, sections_of, tag_of
from surreal.config.schema.fields import Section
from surreal.distributed.connection import keys
from surreal.envs.ids import find_env
from surreal.envs.wrappers.named import WrapperSpec, find_wrapper, wrapper_names
from surreal.plugins.apps.option_docs import Option, described, options_of, parameters_of, plain, summary
from surreal.plugins.doctor.finding import FAULTS
from surreal.plugins.sweep.schema import Range, SweepConfig
from surreal.run.build.acting import AGENT, MODEL
from surreal.run.build.construct import Recipe
from surreal.run.build.learning import LEARNER, REPLAY
from surreal.run.process.arguments import RoleArguments, left_out
from surreal.run.process.roles import RLX_CLIENT, RLX_SERVER, ROLES
from surreal.run.roles.rlx_client import ClientArguments
from surreal.run.roles.rlx_server import ServerArguments

DOCS = Path(__file__).parents[1] / "docs"
_NAMES = ("commands", "configuration", "doctor", "many-runs", "options", "redis-keys")
PAGES = tuple(DOCS / f"{name}.md" for name in _NAMES)
_PART = re.compile(r"(<!-- written by make docs: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_RECIPES: tuple[tuple[ModuleType, Recipe[Any]], ...] = (
    (surreal.model, MODEL),
    (surreal.agent, AGENT),
    (surreal.learner, LEARNER),
    (surreal.replay, REPLAY),
)
_ENV_IDS = ("surreal/Bandit-v0", "surreal/BitFlip-v0", "surreal/ViZDoom-v0", "surreal/DeepMindLab-v0")
_MARKS = ("yes", "override", "no")
_ARGUMENTS: dict[str, type[Any]] = {RLX_SERVER.name: ServerArguments, RLX_CLIENT.name: ClientArguments}


def fill(page: str) -> str:
    """Return a page with its parts as the code has them now."""

    def written(found: re.Match[str]) -> str:
        text = "\n".join(PARTS[found[2]]()).strip()
        return f"{found[1]}\n{text}\n\n{found[3]}"

    return _PART.sub(written, page)


# -- settings ------------------------------------------------------------------------------------------------------


def settings() -> Iterable[str]:
    """Return the tables of all settings of a configuration."""
    return ["## The file itself\n", *tables_of(Config)]


def sweeps() -> Iterable[str]:
    """Return the tables of all settings of a sweep's file."""
    ranges = ["## a range of grid or search.space\n", f"{cell(Range.__doc__)}\n", *tables_of(Range)]
    return [part.replace("## ", "### ") for part in ("## The file itself\n", *tables_of(SweepConfig), *ranges)]


def tables_of(root: type[Section]) -> list[str]:
    """Write the settings of a file: its own, then those of each section, each with its heading."""
    parts = [_table(own_fields(root, root))]
    nested: dict[type[Section], str] = {}
    for name, field in root.model_fields.items():
        for section in sections_of(field.annotation):
            parts += [f"## {name}\n", f"{cell(section.__doc__)}\n", _table(own_fields(section, root))]
            for key, inner in own_fields(section, root):
                _collect(f"{name}.{key}", inner.annotation, nested)
    for section, key in nested.items():
        tag = tag_of(section)
        title = f"{key}: `type: {tag}`" if tag else f"an entry of {key}"
        parts += [f"### {title}\n", f"{cell(section.__doc__)}\n"]
        fields = [(name, field) for name, field in own_fields(section, root) if not tag or name != "type"]
        parts += [_table(fields)] if fields else []
    return parts


def _collect(key: str, annotation: Any, nested: dict[type[Section], str]) -> None:
    for section in sections_of(annotation):
        if section not in nested:
            nested[section] = key
            for field in section.model_fields.values():
                _collect(key, field.annotation, nested)


def _table(fields: Sequence[tuple[str, FieldInfo]]) -> str:
    rows = [(f"`{name}`", *describe(field)) for name, field in fields]
    return table(("setting", "kind", "default", "meaning"), rows)


# -- options -------------------------------------------------------------------------------------------------------


def classes() -> Iterator[str]:
    """Yield the options of all public classes that a configuration may name."""
    for module, recipe in _RECIPES:
        yield f"## {recipe.section}\n"
        titles = {cls: f"`{module.__name__}.{cls.__name__}`" for cls in public_classes(module, recipe.base)}
        bases = dict.fromkeys(option.shown_by for cls in titles for option in options_of(cls))
        titles = {base: f"Options of `{base.__name__}`" for base in bases if base not in titles} | titles
        for cls, title in titles.items():
            yield f"### {title}\n"
            yield from class_text(cls, recipe, titles)


def public_classes(module: ModuleType, base: type[object]) -> Iterator[type[object]]:
    """Find the classes of `module.__all__` that a configuration may name."""
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.isclass(found) and issubclass(found, base) and not inspect.isabstract(found):
            yield found


def class_text(cls: type[object], recipe: Recipe[Any], titles: Mapping[type[object], str]) -> Iterator[str]:
    """Yield a table of the options that a class declares or describes, and the names of inherited options."""
    options = options_of(cls)
    collaborators = [option.name for option in options if option.is_positional][: recipe.collaborators]
    options = [option for option in options if option.name not in collaborators]
    own = {option.name for option in options if option.shown_by is cls or option.name in parameters_of(cls)}
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
    rest = described(cls).get("options", "")
    if len(rest.split()) > 4:  # more than "as in the base"
        yield f"Inherited options are {cell(rest)}\n"


def wrappers() -> Iterator[str]:
    """Yield the options of all wrappers that have a name."""
    for name in wrapper_names():
        cls = find_wrapper(name)
        if inspect.isclass(cls):
            only = " For training only." if WrapperSpec(name).is_training_only else ""
            yield f"### `{name}`\n\n{summary(cls)}{only}\n"
            rows = [(f"`{option.name}`", *_cells(option)) for option in options_of(cls)[1:]]
            if rows:
                yield table(("option", "type", "default", "meaning"), rows)


def environments() -> Iterator[str]:
    """Yield the options of the environments that come with Surreal."""
    for env_id in _ENV_IDS:
        cls: Any = load_env_creator(str(find_env(env_id).entry_point))
        yield f"### `{env_id}`\n\n{summary(cls)}\n"
        rows = [(f"`{option.name}`", *_cells(option)) for option in options_of(cls) if option.name != "render_mode"]
        yield table(("option", "type", "default", "meaning"), rows)


def _cells(option: Option) -> tuple[str, str, str]:
    kind = f"`{cell(option.annotation)}`" if option.annotation else ""
    default = "required" if option.default is inspect.Parameter.empty else default_cell(option.default)
    return kind, default, cell(plain(option.meaning))


# -- commands ------------------------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    """Yield all commands, by panel."""
    found = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    roles = {role.name: role for role in ROLES}
    for panel in Panel:
        named = [name for name, command in found.items() if command.rich_help_panel == panel]
        if named:
            yield f"## {panel.value}\n"
        for name in named:
            command = found[name]
            if name in roles:
                kind = _ARGUMENTS.get(name, RoleArguments)
                options = options_of_command(kind, () if name == RLX_CLIENT.name else left_out(roles[name]))
                command = make_command(lambda **_: None, options, roles[name].summary)
            yield from _sections(f"surreal {name}", command)


def _sections(name: str, command: Any) -> Iterator[str]:
    """Describe a command, and those inside it."""
    inner = getattr(command, "commands", {})
    yield f"### {name}\n"
    yield f"{cell(command.help)}\n"
    shown = [each for each in command.params if not each.hidden and each.name not in ("help", "debug")]
    if shown:
        rows = [(_usage(each), cell(each.help), _default(each)) for each in shown]
        yield table(("argument", "meaning", "default"), rows)
    for word, each in inner.items():
        yield from (text.replace("### ", "#### ", 1) for text in _sections(f"{name} {word}", each))


def _usage(parameter: Any) -> str:
    """Show how a parameter is written."""
    if parameter.param_type_name == "argument":
        return f"`{cell(parameter.metavar or parameter.name.upper())}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
    return ", ".join(f"`{name}{value}`" for name in names)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value in (None, False, "", ()) or callable(value) else default_cell(str(value))


# -- faults and keys -----------------------------------------------------------------------------------------------


def faults() -> Iterator[str]:
    """Yield the tables of all faults that `surreal doctor` knows, one for each section."""
    for section, entries in groupby(FAULTS.items(), key=lambda item: item[1].section):
        rows = [(f"`{name}`", found.severity.label, cell(found.cause), cell(found.remedy)) for name, found in entries]
        yield f"### {section.capitalize()}\n"
        yield table(("fault", "", "cause", "remedy"), rows)


def redis_keys() -> Iterable[str]:
    """Return the table of all keys, which is a docstring."""
    return [(keys.__doc__ or "").partition("\n\n")[2]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table from cells; texts in them have gone through `cell`."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


_ALL = (settings, sweeps, classes, wrappers, environments, commands, faults, redis_keys)
#: By the name in the comment.
PARTS: Mapping[str, Callable[[], Iterable[str]]] = {part.__name__: part for part in _ALL}

if __name__ == "__main__":
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
