"""The sections of a YAML file as pieces of text, so that replacing some leaves every character of the others."""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:")


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
