"""`Reader`: does what a page says, in its order, in an empty folder, and compares what appears.

    with Reader(workplace) as reader:
        reader.follow(read_page(ROOT / "docs" / "tutorial.md"))

Commands have their real effect: `surreal` and `python` run as `Workplace` starts them, `cd` moves on, `export` sets a
variable, and everything else is bash's. What goes on in the background ends with the reader.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.pages import Block, Kind, appears

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace

#: Signs by which bash does more than to start one program.
_FOR_BASH = set("|;<>&$*`~=(")
_BASH = "import os, sys; os.execvp('bash', ['bash', '-ec', sys.argv[1]])"
#: An end by Ctrl-C.
_INTERRUPTED = (0, 130)


class Reader:
    """Follows pages.

    Args:
        workplace: where; an empty folder.
        words: of commands and files, and what to put in their place: ports that are free.

    Attributes:
        folder: where commands are typed.
        output: of the block before.
    """

    def __init__(self, workplace: Workplace, words: Mapping[str, object] | None = None) -> None:
        self.workplace = workplace
        self.folder = workplace.folder
        self.output = ""
        self._words = dict(words or {})
        scripts = str(Path(sys.executable).parent)
        self._variables = {"PATH": f"{scripts}:{workplace.environment['PATH']}"}
        self._program = ""
        self._going_on: list[Command] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for command in reversed(self._going_on):
            command.interrupt()
            code = command.wait()
            assert error or code in _INTERRUPTED, f"exit code {code} of {command.process.args}:\n{command.output}"

    def follow(self, blocks: Iterable[Block]) -> None:
        """Do what these blocks say."""
        for block in blocks:
            if block.is_run:
                self._take(block._replace(text=self._replaced(block.text)))

    def _take(self, block: Block) -> None:
        if block.kind is Kind.FILE:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_text() + "\n\n" if block.is_appended else ""
            path.write_text(before + block.text)
        elif block.kind is Kind.COMMANDS:
            self._type(block)
        elif block.kind is Kind.PROGRAM:
            before = self._program if "continued" in block.marks else ""
            self._program = f"{before}\n{block.marks.get('setup', '')}\n{block.text}"
            self.output = self._finish(self._start("python", "-c", self._program), block)
        elif block.kind is Kind.OUTPUT:
            missing = appears(block.text, self.output)
            assert missing is None, f"line {block.line}: {missing!r} is not in what was printed:\n{self.output}"

    def _type(self, block: Block) -> None:
        for line in block.marks.get("setup", "").splitlines():
            self._finish(self._begin(line.strip()), block)
        self.output = ""
        lines = [part.strip() for line in block.commands() for part in line.split("&&")]
        for number, line in enumerate(lines, start=1):
            name, _, rest = line.partition(" ")
            if name == "cd":
                self.folder = self.folder / rest
                assert self.folder.is_dir(), f"line {block.line}: there is no {self.folder}"
                continue
            if name == "export":
                self._variables |= dict([rest.split("=", 1)])
                continue
            options = self._replaced(block.marks.get("options", "")) if name == "surreal" else ""
            command = self._begin(f"{line} {options}".strip())
            if text := block.marks.get("background"):
                self._going_on.append(command)
                self._wait_for(text, command)
            else:
                code = int(block.marks.get("exit", "0")) if number == len(lines) else 0
                self._finish(command, block, code)
            self.output += command.output

    def _begin(self, line: str) -> Command:
        if not _FOR_BASH & set(re.sub(r"--set \S+", "", line)):
            name, *arguments = shlex.split(line)
            if name in ("surreal", "python"):
                return self._start(name, *arguments)
        return self.workplace.spawn("-c", _BASH, line, at=self.folder, **self._variables)

    def _start(self, name: str, *arguments: str) -> Command:
        module = ["-m", "surreal"] if name == "surreal" else []
        return self.workplace.start_python(*module, *arguments, at=self.folder, **self._variables)

    def _finish(self, command: Command, block: Block, wanted: int = 0) -> str:
        code = command.wait()
        assert code == wanted, f"line {block.line}: exit code {code} of {command.process.args}:\n{command.output}"
        return command.output

    def _wait_for(self, text: str, command: Command) -> None:
        def has_appeared() -> bool:
            assert command.process.poll() is None, command.output
            return appears(text, command.output) is None

        self.workplace.wait_for(has_appeared, text)

    def _replaced(self, text: str) -> str:
        for word, meaning in self._words.items():
            text = re.sub(rf"\b{re.escape(word)}\b", str(meaning), text)
        return text
