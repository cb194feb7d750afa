"""Pages of documentation as a reader takes them: files to write, commands to type, programs to run, what appears.

    for block in read_page(ROOT / "docs" / "tutorial.md"): ...

What a block is, a reader sees:

    `environment/training.py`:       the block below is this file; ", at the end:" appends to what is there
    ```python                        whose first line is "# my_classes.py": this file, too
    ```bash                          commands, a line each; a backslash at the end of a line continues it
    ```python                        of no file: a program of its own
    ``` or ```text                   right below commands or a program: what appears, see `appears`

What only the test needs is in comments right above the block, which no reader sees:

    <!-- not run: REASON -->         nobody executes it
    <!-- setup: TEXT -->             commands before these commands, or code before this program
    <!-- options: TEXT -->           added to each `surreal` command of the block
    <!-- exit: 2 -->                 code that the last command ends with, in place of 0
    <!-- background: TEXT -->        commands that go on: until TEXT has appeared, then until the end of the page
    <!-- continued -->               the program goes on with the one above
    <!-- where: NAME=demo -->        words of commands and programs, here and below: NAME is to be read as demo

Such a comment stands above the line that names a file. `tests/e2e/reader.py` does what a page says.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Mapping
from enum import Enum
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
#: Pages of docs/ that tests/e2e follows from their beginning to their end.
FOLLOWED = (
    "browser-game",
    "getting-started",
    "offline",
    "own-algorithm",
    "own-environment",
    "remote-game",
    "tutorial",
)
#: A comment, or a block; what is between two of them is prose.
_TOKEN = re.compile(
    r"^ *<!--(?P<mark>.*?)-->|^(?P<indent> *)```(?P<language>[\w+-]*)\n(?P<text>.*?)^(?P=indent)```",
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(r"\s*(not run|setup|options|exit|background|continued|where)(?::\s*(.*?))?\s*", re.DOTALL)
_NAME = r"([\w./-]+\.(?:py|ya?ml|json|toml|m?js|html|[ch]pp|cs|gd))"
_FILE = re.compile(rf"^(?:.* )?`{_NAME}`(, at the end)?:$")
_FIRST_LINE = re.compile(rf"(?:#|//) {_NAME}\n")
_NUMBER = re.compile(r"\d[\d,]*(?:\\\.\d+)?")


@cache
def load_script(name: str) -> Any:
    """Load a program of scripts/ as a module."""
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Kind(Enum):
    """What a reader does with a block."""

    FILE = "writes it"
    COMMANDS = "types it"
    PROGRAM = "runs it"
    OUTPUT = "sees it"
    TEXT = "reads it"


class Block(NamedTuple):
    """A block of a page."""

    kind: Kind
    text: str
    language: str
    line: int  #: of the page, of its first line
    file: str = ""  #: path, of a file
    is_appended: bool = False  #: whether it goes on where the file ended
    marks: Mapping[str, str] = {}  #: see above; `where` is applied already

    @property
    def is_run(self) -> bool:
        """Whether a test does with it what a reader does."""
        return "not run" not in self.marks

    def commands(self) -> list[str]:
        """Its commands, without comments."""
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        return [command for line in lines if (command := re.sub(r"(^|\s+)#.*", "", line).strip())]


class PageError(Exception):
    """A page is marked up in a way that means nothing."""


def read_page(path: Path) -> list[Block]:
    """Read all blocks of a page.

    Raises:
        PageError: a comment belongs to no block.
    """
    text = path.read_text()
    blocks: list[Block] = []
    words: dict[str, str] = {}
    marks: dict[str, str] = {}
    ended = 0
    for token in _TOKEN.finditer(text):
        line = text.count("\n", 0, token.start()) + 1
        prose = text[ended : token.start()].strip()
        ended = token.end()
        file = _FILE.match(prose.rpartition("\n")[2])
        is_below = not prose
        if marks and prose and not (file and "\n" not in prose):
            raise PageError(f"{path.name} line {line}: no block below the comment {next(iter(marks))}")
        if token["mark"] is not None:
            if mark := _MARK.fullmatch(token["mark"]):
                if mark[1] == "where":
                    words |= dict(pair.split("=", 1) for pair in shlex.split(mark[2]))
                else:
                    marks[mark[1]] = mark[2] or ""
            continue
        shown = textwrap.dedent(token["text"])
        above = blocks[-1].kind if blocks and is_below else None
        block = Block(_kind(token["language"], above), shown, token["language"], line, marks=marks)
        if file or (block.kind is not Kind.OUTPUT and (file := _FIRST_LINE.match(shown))):
            is_appended = file.re is _FILE and file[2] is not None
            block = block._replace(kind=Kind.FILE, file=file[1], is_appended=is_appended)
        elif block.kind in (Kind.COMMANDS, Kind.PROGRAM):
            block = block._replace(text=_replaced(shown, words))
        if block.kind is Kind.OUTPUT and not blocks[-1].is_run:
            block = block._replace(marks=blocks[-1].marks)
        blocks.append(block)
        marks = {}
    if marks:
        raise PageError(f"{path.name}: no block below the comment {next(iter(marks))}")
    return blocks


def appears(wanted: str, output: str) -> str | None:
    """Look for lines, in their order, in what was printed; returns the first that is missing.

    Spaces and numbers of a line may be others, and "..." in it may be anything; a line "..." is for readers.
    """
    place = 0
    for line in wanted.splitlines():
        if line.strip() in ("", "..."):
            continue
        found = _pattern(line).search(output, place)
        if found is None:
            return line
        place = found.end()
    return None


def _pattern(line: str) -> re.Pattern[str]:
    parts = [re.escape(part) for part in line.replace("...", "\0").split()]
    pattern = r"[ \t]+".join(_NUMBER.sub(r"[\\d,]+(?:\\.\\d+)?", part) for part in parts)
    return re.compile(pattern.replace(re.escape("\0"), ".*").replace("\0", ".*"))


def _kind(language: str, above: Kind | None) -> Kind:
    if language in ("bash", "sh"):
        return Kind.COMMANDS
    if language == "python":
        return Kind.PROGRAM
    is_output = language in ("", "text") and above in (Kind.COMMANDS, Kind.PROGRAM, Kind.OUTPUT)
    return Kind.OUTPUT if is_output else Kind.TEXT


def _replaced(text: str, words: Mapping[str, str]) -> str:
    for word, meaning in words.items():
        text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", lambda _, meaning=meaning: meaning, text)
    return text
