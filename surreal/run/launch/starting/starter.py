"""What starting a process means, whoever does it, and the plain way: a Python of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from surreal.run.process.ending.interrupts import checkpoint_signal_held
from surreal.run.process.ending.lifeline import child_environment


class Process(Protocol):
    """A child process, as `subprocess.Popen` has it."""

    pid: int
    returncode: Any  #: None while it runs; -N if signal N ended it

    def poll(self) -> int | None:
        """Look whether it has ended; returns `returncode`."""

    def wait(self) -> int:
        """Wait for its end."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless it has ended."""


class Starter(Protocol):
    """Starts the `main(arguments)` of a module as a process."""

    def start(self, module: str, arguments: Sequence[str], *, console: Path, environment: Mapping[str, str]) -> Process:
        """Start it.

        Args:
            module: dotted name.
            arguments: of the program, without its name.
            console: file that its output is appended to.
            environment: variables added to this process's own.
        """


class Spawner:
    """Starts every process in a new Python; called from the main thread."""

    def start(self, module: str, arguments: Sequence[str], *, console: Path, environment: Mapping[str, str]) -> Process:
        with console.open("ab") as file, checkpoint_signal_held():
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=child_environment(environment),
                start_new_session=True,
            )
