"""YAML that is edited: an app.yaml whose comments, order and way of writing stay as they are."""

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
    """Read a file.

    Raises:
        ConfigError: it is missing, no YAML, or no mapping of sections.
    """
    try:
        return parse_document(path.read_text(encoding="utf-8"), path.name)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; `surreal new NAME` makes an app, -c names another file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def parse_document(text: str, label: str) -> CommentedMap:
    """Read a text; `label` is its name in messages.

    Raises:
        ConfigError: it is no YAML, or no mapping of sections.
    """
    parse(text, label)  # which names the line of what is wrong, and is as strict as a run
    try:
        found = _yaml().load(text)
    except YAMLError as error:
        raise ConfigError(f"{label} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, CommentedMap):
        raise ConfigError(f"{label} holds no sections")
    return found


def to_text(document: CommentedMap) -> str:
    """Write a document."""
    stream = io.StringIO()
    _yaml().dump(document, stream)
    return stream.getvalue()


def save_text(path: Path, text: str, *, is_kept: bool = False) -> Path | None:
    """Check a configuration as a run would, and put it in the place of a file, which is kept next to it.

    Args:
        path: path of the file.
        text: what it is to hold.
        is_kept: whether the earlier file is kept already.

    Returns:
        Where the earlier file is now; None if there was none.

    Raises:
        ConfigError: a setting is wrong; nothing was written.
    """
    check_text(path, text)
    kept = None if is_kept else back_up(path)
    write_whole(path, text)
    return kept


def check_text(path: Path, text: str) -> None:
    """Check a configuration that is to become a file.

    Raises:
        ConfigError: a setting is wrong.
    """
    trial = path.with_name(f".{path.stem}.trial.yaml")
    try:
        trial.write_text(text, encoding="utf-8")
        load_config(trial)
    except ConfigError as error:
        raise ConfigError(str(error).replace(trial.name, path.name), key=error.key, source=error.source) from error
    finally:
        trial.unlink(missing_ok=True)


def back_up(path: Path) -> Path | None:
    """Move a file or folder to `NAME.~N~`, the first N that is free; returns where to, None if there is none."""
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
    """Give the value at a dotted key, None if it is not there."""
    found: Any = document
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def set_value(document: CommentedMap, key: str, value: Any) -> None:
    """Set the value at a dotted key; sections that are missing are made.

    What stands below a section, such as an empty line, is below what comes to stand last in it.

    Raises:
        ConfigError: the key leads through something that has no keys.
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
            raise ConfigError(f"{path} is {target!r}, which has no settings of its own", key=key)
    target[last] = _node(value)
    if below:
        _put_below(document[sections[0]], below)


def _last_line(section: Any) -> tuple[CommentedMap, str] | None:
    """Find the mapping and the key of a section's last line; None where that is not a setting of its own."""
    if not isinstance(section, CommentedMap) or section.fa.flow_style() or not section:
        return None
    name = next(reversed(section))
    value = section[name]
    if isinstance(value, CommentedMap | CommentedSeq) and value and not value.fa.flow_style():
        return _last_line(value)
    return section, name


def _cut_below(section: Any) -> str:
    """Take away the lines that stand below a section's last one, and give them."""
    if (found := _last_line(section)) is None:
        return ""
    mapping, name = found
    noted = mapping.ca.items.get(name)
    if noted is None or noted[2] is None:
        return ""
    beside, _, below = noted[2].value.partition("\n")
    if beside:
        noted[2].value = f"{beside}\n"
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
    """Put sections over those of a document, setting by setting; comments come along."""
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
        Text by name, in order; "" has what stands above the first one, if anything does.
    """
    parts: dict[str, str] = {}
    name, body = "", ""
    above = ""  # lines that belong to whatever comes next
    for line in text.splitlines(keepends=True):
        found = _KEY.match(line)
        if found is not None:
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
    """Write sections as a file."""
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts.values() if part)


def _node(value: Any) -> Any:
    """Make a value such that it is read again as what it is, and lists and mappings stand on one line."""
    if isinstance(value, Mapping):
        mapping = CommentedMap((name, _node(each)) for name, each in value.items())
        mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, list | tuple):
        sequence = CommentedSeq(_node(each) for each in value)
        sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, str) and parse(to_text(CommentedMap(x=value)), "")[0] != {"x": value}:
        return DoubleQuotedScalarString(value)  # YAML 1.1 takes `on` for true
    return value


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # no line is broken that was none
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml
