"""`Reader`: does what a page says, in its order, in an empty folder, and compares what appears.

    Reader(workplace).follow(read_page(ROOT / "docs" / "tutorial.md"))

Commands have their real effect: `surreal` and `python` run as `Workplace` starts them, `cd` moves on, and everything
else is bash's.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pages import Block, Kind, appears

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace

#: Signs by which bash does more than to start one program.
_FOR_BASH = set("|;<>&$*`~=(")
_BASH = "import os, sys; os.execvp('bash', ['bash', '-ec', sys.argv[1]])"


class Reader:
    """Follows pages.

    Args:
        workplace: where; an empty folder.
        variables: of the environment of all commands.
    """

    def __init__(self, workplace: Workplace, **variables: str) -> None:
        self.workplace = workplace
        self.folder = workplace.folder
        self.output = ""  #: of the block before
        scripts = str(Path(sys.executable).parent)
        self._variables = {"PATH": f"{scripts}:{workplace.environment['PATH']}", **variables}
        self._program = ""
        self._going_on: list[Command] = []

    def follow(self, blocks: Iterable[Block]) -> None:
        """Do what these blocks say, and end what goes on."""
        try:
            for block in blocks:
                if block.is_run:
                    self._take(block)
        finally:
            while self._going_on:
                self._going_on.pop().interrupt()
        for command in self.workplace.commands:
            command.wait()

    def _take(self, block: Block) -> None:
        if block.kind is Kind.FILE:
            self._write(block)
        elif block.kind is Kind.COMMANDS:
            self._type(block)
        elif block.kind is Kind.PROGRAM:
            before = self._program if "continued" in block.marks else ""
            self._program = f"{before}\n{block.marks.get('setup', '')}\n{block.text}"
            self._finish(self._start_python("-c", self._program), block)
        elif block.kind is Kind.OUTPUT:
            missing = appears(block.text, self.output)
            assert missing is None, f"line {block.line}: {missing!r} is not in what was printed:\n{self.output}"

    def _write(self, block: Block) -> None:
        path = self.folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if block.is_appended else ""
        path.write_text(before + block.text)

    def _type(self, block: Block) -> None:
        for line in block.marks.get("setup", "").splitlines():
            self._finish(self._start(line.strip()), block, is_last=False)
        self.output = ""
        lines = [part.strip() for line in block.commands() for part in line.split("&&")]
        for number, line in enumerate(lines, start=1):
            if line.startswith("surreal "):
                line = f"{line} {block.marks.get('options', '')}"
            if line.startswith("cd "):
                self.folder = self.folder / line[3:].strip()
                assert self.folder.is_dir(), f"line {block.line}: there is no {self.folder}"
                continue
            command = self._start(line)
            if text := block.marks.get("background"):
                self._going_on.append(command)
                self._wait_for(text, command)
                self.output += command.output
            else:
                self._finish(command, block, is_last=number == len(lines))

    def _start(self, line: str) -> Command:
        if not _FOR_BASH & set(line):
            name, *arguments = shlex.split(line)
            if name in ("surreal", "python"):
                return self._start_python(*(["-m", "surreal"] if name == "surreal" else []), *arguments)
        return self.workplace.spawn("-c", _BASH, line, at=self.folder, **self._variables)

    def _start_python(self, *arguments: str) -> Command:
        return self.workplace.start_python(*arguments, at=self.folder, **self._variables)

    def _finish(self, command: Command, block: Block, *, is_last: bool = True) -> None:
        code = command.wait()
        self.output = command.output if block.kind is Kind.PROGRAM else self.output + command.output
        wanted = int(block.marks.get("exit", "0")) if is_last else 0
        assert code == wanted, f"line {block.line}: exit code {code} of {command.process.args}:\n{command.output}"

    def _wait_for(self, text: str, command: Command) -> None:
        def has_appeared() -> bool:
            assert command.process.poll() is None, command.output
            return appears(text, command.output) is None

        self.workplace.wait_for(has_appeared, text)
