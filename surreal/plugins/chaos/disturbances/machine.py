"""Disturbances of the machine, as the processes of a run see it: its clock jumps, and its disk is slow.

They need no rights and change nothing outside of the run: a small library (`machine.c`), which a C compiler of this
machine makes, is loaded into each process of the run and into its Redis.
"""

from __future__ import annotations

import shlex
import shutil
import struct
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.plugins.chaos.disturbances.processes import Disturbance, Kind

#: How far the clock jumps ahead, s, and how much longer each sync of a slow disk takes, ms.
JUMP_S, SYNC_MS = 60, 300


class Machine:
    """The clock and the disk of the processes that have its library.

    Args:
        folder: for the library and its numbers; it must outlive the processes.

    Raises:
        ConfigError: the library cannot be made here.
    """

    def __init__(self, folder: Path) -> None:
        self._numbers, library = folder / "machine.numbers", folder / "machine.so"
        self._set(0, 0)
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None or sys.platform != "linux":
            raise ConfigError("--machine needs Linux and a C compiler; install one (such as gcc)", key="--machine")
        with as_file(files(__package__) / "machine.c") as source:
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source)]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise ConfigError(f"--machine: {compiler} fails: {made.stderr.strip()[-300:]}", key="--machine")
        self.environment = {"LD_PRELOAD": str(library), "SURREAL_CHAOS_MACHINE": str(self._numbers)}  #: of a process

    def wrap(self, program: Path) -> Path:
        """Make a script that runs a program on this machine."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        script = self._numbers.with_name(program.name)
        script.write_text(f'#!/bin/sh\n{settings} exec {shlex.quote(str(program))} "$@"\n')
        script.chmod(0o700)
        return script

    def disturb(self, kind: Kind) -> None:
        """Move the clock ahead, or make the disk slow."""
        self._set(JUMP_S if kind is Kind.CLOCK else 0, SYNC_MS if kind is Kind.DISK else 0)

    def heal(self) -> None:
        """Set the clock back, and make the disk as fast as it is."""
        self._set(0, 0)

    def _set(self, offset_s: int, delay_ms: int) -> None:
        # In place, because the processes have mapped this file.
        with self._numbers.open("r+b" if self._numbers.exists() else "wb") as file:
            file.write(struct.pack("=qq", offset_s, delay_ms))


class ClockOrDisk(Disturbance):
    """A jump of the clock, and back at the end; or a slow disk."""

    def __init__(self, kind: Kind, machine: Machine) -> None:
        super().__init__("the machine")
        self.kind, self._machine = kind, machine
        self.detail = f"{JUMP_S} s ahead" if kind is Kind.CLOCK else f"each sync takes {SYNC_MS} ms more"

    def begin(self) -> None:
        self._machine.disturb(self.kind)

    def end(self) -> None:
        self._machine.heal()
