"""Edits an app.yaml, and keeps its comments, order and style."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.tokens import CommentToken

from surreal.base.errors import ConfigError
from surreal.base.system.files import write_whole
from surreal.config import load_config
from surreal.config.yaml_tree import parse

#: The first line of a section.
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:")


def read_document(path: Path) -> CommentedMap:
    """Read a file."""
    try:
        return parse_document(path.read_text(encoding="utf-8"), path.name)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; `surreal new NAME` makes an app, -c names another file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def parse_document(text: str, label: str) -> CommentedMap:
    """Read a text; `label` is its name in messages."""
    parse(text, label)  # its errors name the line, and it is as strict as a run
    try:
        found = _yaml().load(text)
    except YAMLError as error:
        raise ConfigError(f"{label} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, CommentedMap):
        raise ConfigError(f"{label} has no sections")
    return found


def to_text(document: CommentedMap) -> str:
    """Write a document."""
    stream = io.StringIO()
    _yaml().dump(document, stream)
    return stream.getvalue()


def save_text(path: Path, text: str, *, is_kept: bool = False) -> Path | None:
    """Check a configuration like a run does, and write it to a file; return where the earlier file is kept, or None.

    Raises:
        ConfigError: a setting is wrong; nothing was written.
    """
    check_text(path, text)
    kept = None if is_kept else back_up(path)
    write_whole(path, text)
    return kept


def check_text(path: Path, text: str) -> None:
    """Check a configuration before it is written to a file."""
    trial = path.with_name(f".{path.stem}.trial.yaml")
    try:
        trial.write_text(text, encoding="utf-8")
        load_config(trial)
    except ConfigError as error:
        raise ConfigError(str(error).replace(trial.name, path.name), key=error.key, source=error.source) from error
    finally:
        trial.unlink(missing_ok=True)


def back_up(path: Path) -> Path | None:
    """Move a file or folder to `NAME.~N~` with the first free N, and return the new path; None if it does not exist."""
    if not path.exists():
        return None
    number = 1
    while (kept := path.with_name(f"{path.name}.~{number}~")).exists():
        number += 1
    if path.is_dir():
        shutil.move(path, kept)
    else:
        shutil.copy2(path, kept)
    return kept


def get_value(document: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key, or None."""
    found: Any = document
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def set_value(document: CommentedMap, key: str, value: Any) -> None:
    """Set the value at a dotted key, and make missing sections.

    Lines below a section, such as an empty line, stay below its last setting.
    """
    *sections, last = key.split(".")
    target = document
    below = _cut_below(document.get(sections[0])) if sections else ""
    for number, name in enumerate(sections):
        if target.get(name) is None:
            target[name] = CommentedMap()
        target = target[name]
        if not isinstance(target, CommentedMap):
            path = ".".join(sections[: number + 1])
            raise ConfigError(f"{path} is {target!r}, not a section with settings", key=key)
    target[last] = _node(value)
    if below:
        _put_below(document[sections[0]], below)


def _last_line(section: Any) -> tuple[CommentedMap, str] | None:
    """Find the mapping and the key of a section's last line; None if that line is not a single setting."""
    if not isinstance(section, CommentedMap) or section.fa.flow_style() or not section:
        return None
    name = next(reversed(section))
    value = section[name]
    if isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        return _last_line(value)
    return section, name


def _cut_below(section: Any) -> str:
    """Remove the comment lines below a section's last setting, and return them."""
    if (found := _last_line(section)) is None:
        return ""
    mapping, name = found
    noted = mapping.ca.items.get(name)
    if noted is None or noted[2] is None:
        return ""
    same_line, _, below = noted[2].value.partition("\n")
    if same_line:
        noted[2].value = f"{same_line}\n"
    else:
        del mapping.ca.items[name]
    return str(below)


def _put_below(section: Any, lines: str) -> None:
    if (found := _last_line(section)) is None:
        return
    mapping, name = found
    noted = mapping.ca.items.setdefault(name, [None, None, None, None])
    if noted[2] is None:
        noted[2] = CommentToken("\n", CommentMark(0), None)
    noted[2].value += lines


def merge(document: CommentedMap, sections: CommentedMap) -> None:
    """Override the sections of a document, setting by setting, with their comments."""
    for name, value in sections.items():
        mine = document.get(name)
        if isinstance(mine, CommentedMap) and isinstance(value, CommentedMap):
            merge(mine, value)
            continue
        document[name] = value
        if name in sections.ca.items:
            document.ca.items[name] = sections.ca.items[name]


def split_sections(text: str) -> dict[str, str]:
    """Split a file into its sections, each with the comment right above it and the empty lines before that.

    Returns:
        Text by name, in order; the name "" has the text above the first section, if there is any.
    """
    parts: dict[str, str] = {}
    name, body = "", ""
    above = ""  # lines that belong to the next section
    for line in text.splitlines(keepends=True):
        if (found := _KEY.match(line)) is not None:
            if name or body:
                parts[name] = body
            name, body, above = found[1], above + line, ""
        elif not line.strip() or line.startswith("#"):
            above += line
        else:
            body, above = body + above + line, ""
    parts[name] = body + above
    return parts


def join_sections(parts: Mapping[str, str]) -> str:
    """Join sections to the text of a file."""
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts.values() if part)


def _node(value: Any) -> Any:
    """Convert a value so that reading returns it unchanged, with lists and mappings on one line."""
    if isinstance(value, Mapping):
        mapping = CommentedMap((name, _node(each)) for name, each in value.items())
        mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, list | tuple):
        sequence = CommentedSeq(_node(each) for each in value)
        sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, str) and parse(to_text(CommentedMap(x=value)), "")[0] != {"x": value}:
        return DoubleQuotedScalarString(value)  # YAML 1.1 reads `on` as true
    return value


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # no new line breaks
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml
