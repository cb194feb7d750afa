"""The page of messages has the words of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
#: Stands for what a message fills in.
HOLE = "\0"
ENTRIES = re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE) + re.findall(r"^- `(.*?)`", PAGE, re.MULTILINE)


def texts_of_code() -> str:
    """All texts of the code, one a line; what is formatted into them is a hole."""
    found = []
    for path in (ROOT / "surreal").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else HOLE for part in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%[-.0-9]*[a-z]", HOLE, node.value))
    return "\n".join(found)


def test_each_message_is_one_of_the_code() -> None:
    texts, missing = texts_of_code(), {}
    for entry in ENTRIES:
        words = [part for part in (fragment.strip("; ") for fragment in entry.split("...")) if len(part) > 3]
        assert words and max(map(len, words)) > 7, f"say more of the message: {entry}"
        if absent := [part for part in words if part not in texts]:
            missing[entry] = absent
    assert missing == {}, "the code does not say this"


def test_there_are_enough_of_them_each_with_a_cause_or_a_remedy() -> None:
    assert len(ENTRIES) == len(set(ENTRIES)) >= 50
    bodies = re.split(r"^### .*$", PAGE, flags=re.MULTILINE)[1:]
    assert all(len(body.strip()) > 30 for body in bodies)
