"""Dockerfiles as tests read them: instructions, and what a builder is not given."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction, its lines joined."""

    word: str
    value: str


def read_dockerfile(path: Path) -> list[Instruction]:
    """Read all instructions, without comments."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def stages(instructions: list[Instruction]) -> list[list[Instruction]]:
    """Instructions of each stage; what stands above the first is left out."""
    found: list[list[Instruction]] = []
    for each in instructions:
        if each.word == "FROM":
            found.append([])
        elif found:
            found[-1].append(each)
    return found


def is_ignored(path: Path, name: str) -> bool:
    """Whether a .dockerignore keeps a file from the builder; of its rules, the last one that fits counts."""
    found = False
    for rule in path.read_text().splitlines():
        if not rule or rule.startswith("#"):
            continue
        pattern = rule.removeprefix("!")
        parents = [str(parent) for parent in (Path(name), *Path(name).parents) if str(parent) != "."]
        tails = [part for parent in parents for part in (parent, *_tails(parent))] if "**/" in pattern else parents
        if any(fnmatch.fnmatch(each, pattern.removeprefix("**/")) for each in tails):
            found = not rule.startswith("!")
    return found


def _tails(name: str) -> list[str]:
    parts = Path(name).parts
    return ["/".join(parts[start:]) for start in range(len(parts))]
