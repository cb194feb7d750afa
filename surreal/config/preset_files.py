"""The named presets: YAML files in `surreal/config/presets`, used as they are or as a beginning for one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.config.problems import nearest
from surreal.config.yaml_tree import parse

#: Folder of the presets.
PRESETS = Path(__file__).resolve().parent / "presets"


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def preset_path(name: str) -> Path:
    """Find a preset's file; raises `ConfigError` with the nearest name if there is none."""
    names = preset_names()
    if name not in names:
        similar = nearest(name, names)
        advice = f"did you mean {similar}?" if similar is not None else f"there are {', '.join(names)}"
        raise ConfigError(f"{name} is neither a file nor a preset; {advice}", source=name)
    return PRESETS / f"{name}.yaml"


def preset_title(name: str) -> str:
    """Return the first sentence of a preset's header."""
    return re.split(r"(?<=\.)\s+(?=[A-Z])", _header(name), maxsplit=1)[0]


def preset_table() -> Mapping[str, Mapping[str, str]]:
    """Group the presets by their task: heading, with the extra that it needs, to name to title."""
    table: dict[str, dict[str, str]] = {}
    for name in preset_names():
        config, _ = parse(preset_path(name).read_text(encoding="utf-8"), name)
        task, title = config["env"]["id"].removeprefix("surreal/"), preset_title(name)
        extra = preset_extra(name)
        heading = task + (f"   (needs the {extra} extra)" if extra else "")
        table.setdefault(heading, {})[name] = title.removeprefix(f"{task} with ")
    return table


def preset_extra(name: str) -> str | None:
    """Return the extra that a preset's environment needs, which its header names; None without one."""
    found = re.search(r"Needs the ([\w-]+) extra\.", _header(name))
    return found[1] if found else None


def _header(name: str) -> str:
    """The comment that a preset begins with, in one line."""
    lines = preset_path(name).read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines))
