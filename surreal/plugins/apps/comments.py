"""What a setting means, written beside it: the comments of a new app.yaml come from the schema and the classes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from ruamel.yaml.comments import CommentedMap

from surreal.plugins.apps.explaining import class_summary, meaning_of

_WIDTH = 120
#: Column of a comment beside its setting.
_COLUMN = 38


def comment_sections(document: CommentedMap) -> None:
    """Write a comment beside each setting that has none."""
    for section, _ in document.items():
        if isinstance(document[section], CommentedMap):
            for path, mapping, name in list(_settings(document[section], section)):
                _comment(document, path, mapping, name)


def _settings(mapping: CommentedMap, prefix: str) -> Iterator[tuple[str, CommentedMap, str]]:
    """Yield the settings that stand on lines of their own: dotted key, the mapping that each is in, its name there."""
    for name, value in mapping.items():
        path = f"{prefix}.{name}"
        if isinstance(value, CommentedMap) and not value.fa.flow_style():
            if name == "args":
                yield from _settings(value, path)
            continue
        yield path, mapping, name


def _comment(document: CommentedMap, path: str, mapping: CommentedMap, name: str) -> None:
    if _has_comment(mapping, name) or (isinstance(mapping[name], list) and not mapping[name].fa.flow_style()):
        return
    is_class = name == "class" and "." not in path.removesuffix(".class")
    text = _first_sentence(class_summary(path.partition(".")[0], document) if is_class else meaning_of(path, document))
    if not text:
        return
    indent = 2 * path.count(".")
    used = indent + len(f"{name}: {mapping[name]}")
    column = max(_COLUMN, used + 2)
    if column + len(text) + 2 <= _WIDTH:
        mapping.yaml_add_eol_comment(text, name, column=column)
    else:
        lines = textwrap.wrap(text, _WIDTH - indent - 2)
        mapping.yaml_set_comment_before_after_key(name, before="\n".join(lines), indent=indent)


def _has_comment(mapping: CommentedMap, name: str) -> bool:
    noted = mapping.ca.items.get(name)
    return noted is not None and any(
        "#" in token.value for each in noted if each for token in (each if isinstance(each, list) else [each])
    )


def _first_sentence(text: str) -> str:
    """The first sentence, without its full stop and what stands in brackets: sources, mostly."""
    plain = re.sub(r" \([^()]*\)", "", text)
    return plain.partition(". ")[0].rstrip(".")
