"""Explains settings (`surreal config explain`), and lists the layers of a model (`surreal model`)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo
from rich.table import Table

from surreal.base.errors import ConfigError
from surreal.config import add_python_path, load_config
from surreal.config.problems import all_keys, nearest
from surreal.config.reference import describe, sections_of
from surreal.config.schema.fields import Section
from surreal.config.schema.root import Config
from surreal.plugins.apps.document import get_value


def model_table(source: str) -> Table:
    """Build the model of a preset or file for its environment, and list its layers."""
    from surreal.model import LazyModel
    from surreal.run.build.acting import build_model
    from surreal.run.build.environments import build_spaces

    config = load_config(source)
    add_python_path(config.python_path)
    spaces = build_spaces(config)
    model = build_model(config, spaces)
    if isinstance(model, LazyModel) and spaces.obs_spec is not None:
        model.materialize(spaces.obs_spec)
    title = f"{config.model.class_path} for {config.env.id}"
    table = Table("layer", "kind", "parameters", title=title, title_justify="left", box=None)
    table.add_column("numbers", justify="right")
    total = 0
    for name, layer in model.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if not own:
            continue
        count = sum(parameter.numel() for parameter in own.values())
        total += count
        shapes = ", ".join(f"{each} {list(parameter.shape)}" for each, parameter in own.items())
        table.add_row(name or "(itself)", type(layer).__name__, shapes, f"{count:,}")
    table.add_section()
    table.add_row("all", "", "", f"{total:,}")
    return table


#: Sections that name a class, whose options are in `args`.
_CLASS_SECTIONS = ("model", "agent", "learner", "replay")
_UNITS = (("_bytes", "bytes"), ("_ms", "ms"), ("_s", "s"), ("_steps", "steps"), ("_updates", "updates"))


class Explanation(NamedTuple):
    """Facts about a setting."""

    key: str
    kind: str
    default: str
    unit: str
    meaning: str
    given: Any  #: value in the file; None if it is not set

    def lines(self) -> list[str]:
        rows = [("type", self.kind), ("default", self.default), ("unit", self.unit), ("meaning", self.meaning)]
        if self.given is not None:
            rows.insert(0, ("now", str(self.given)))
        return [self.key, *(f"  {name:8} {text}" for name, text in rows if text)]


def explain(key: str, document: Mapping[str, Any]) -> Explanation:
    """Explain a setting of an app; an option of a class is `learner.args.NAME` or `learner.NAME`.

    The document has its classes and the current values, and may be empty.
    """
    key = key.replace("-", "_")
    section, _, name = key.partition(".")
    option = name.removeprefix("args.")
    if section in _CLASS_SECTIONS and option and option not in _names(section) and (name != "args"):
        return _of_class(section, option, document)
    name, field = _find(key)
    given = get_value(document, key)
    if (found := _section(field)) is not None:
        text = " ".join((found.__doc__ or "").split())
        return Explanation(key, "section", "", "", f"{text} Settings: {', '.join(_names_of(found))}.", None)
    kind, default, meaning = map(_plain, describe(field))
    if key in [f"{each}.class" for each in _CLASS_SECTIONS]:
        meaning = f"{meaning} Now: {class_summary(section, document)}"
    return Explanation(key, kind, default, _unit(name, kind), _plain(meaning), given)


def meaning_of(key: str, document: Mapping[str, Any]) -> str:
    """Return the meaning of a setting, "" if it is unknown."""
    try:
        return explain(key, document).meaning
    except ConfigError:
        return ""


def _find(key: str) -> tuple[str, FieldInfo]:
    current: type[Section] | None = Config
    field: FieldInfo | None = None
    for name in key.split("."):
        fields = {} if current is None else {field.alias or own: field for own, field in current.model_fields.items()}
        if name not in fields:
            similar = nearest(key, list(all_keys(Config))) or nearest(name, list(fields))
            advice = f"did you mean {similar}?" if similar else "`surreal config explain SECTION` lists its settings"
            raise ConfigError(f"{key} is not a setting; {advice}", key=key)
        field = fields[name]
        current = _section(field)
    if field is None:
        raise ConfigError("name a setting, such as learner.gamma", key=key)
    return key.rpartition(".")[2], field


def class_summary(section: str, document: Mapping[str, Any]) -> str:
    """Return the summary of the docstring of a section's class."""
    from surreal.plugins.apps.option_docs import summary

    cls, _ = _class_of(section, document)
    return _plain(summary(cls))


def _class_of(section: str, document: Mapping[str, Any]) -> tuple[type[object], Any]:
    """Find the class of a section, or its default, and the recipe that builds it."""
    from surreal.config import import_class  # the modules below import torch
    from surreal.run.build.acting import AGENT, MODEL
    from surreal.run.build.learning import LEARNER, REPLAY

    recipe: Any = {"model": MODEL, "agent": AGENT, "learner": LEARNER, "replay": REPLAY}[section]
    path = get_value(document, f"{section}.class") or Config.model_fields[section].default.class_path
    return import_class(str(path), recipe.base, key=f"{section}.class"), recipe


def _of_class(section: str, option: str, document: Mapping[str, Any]) -> Explanation:
    from surreal.plugins.apps.option_docs import options_of

    cls, recipe = _class_of(section, document)
    renamed = recipe.renamed or {}
    options = {each.name: each for each in options_of(cls)}
    found = options.get(renamed.get(option, option))
    if found is None or found.name in recipe.offered - recipe.replaceable:
        offered = [*_names(section), *(name for name in options if name not in recipe.offered)]
        similar = nearest(option, offered)
        advice = f"did you mean {similar}?" if similar else f"it takes {', '.join(offered)}"
        raise ConfigError(f"{section}.{option} is neither a setting nor an option of {cls.__name__}; {advice}")
    key = f"{section}.args.{option}"
    default = "unset" if found.default is None else str(found.default)
    default = default.lower() if isinstance(found.default, bool) else default
    default = "required" if found.default is inspect.Parameter.empty else default
    return Explanation(
        key, found.annotation, default, _unit(option, ""), _plain(found.meaning), get_value(document, key)
    )


def _unit(name: str, kind: str) -> str:
    if kind == "size":
        return "bytes, or a text such as 64mb"
    return "" if kind.startswith("`true`") else next((unit for ending, unit in _UNITS if name.endswith(ending)), "")


def _section(field: FieldInfo) -> type[Section] | None:
    found = list(sections_of(field.annotation))
    return found[0] if len(found) == 1 and found[0] is field.annotation else None


def _names(section: str) -> list[str]:
    found = _section(Config.model_fields[section])
    return [] if found is None else _names_of(found)


def _names_of(section: type[Section]) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("`", "").replace("\\|", "|")
