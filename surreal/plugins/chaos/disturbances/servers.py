"""Disturbances of Redis (killed and started again, emptied, filled, connections broken), of the clock and of the disk.

Clock and disk are those that the processes of a run see. This needs no rights and changes nothing outside of the run: a
small library (`machine.c`), which a C compiler of this machine makes, is loaded into each process and into its Redis.
"""

from __future__ import annotations

import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import psutil
from redis.client import Pipeline
from redis.exceptions import RedisError

from surreal.base.errors import ConfigError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import RUNS, run_pattern
from surreal.plugins.chaos.disturbances.processes import Disturbance, Kind, NotDoneError

#: Size of a ballast value; the longest value of Redis is 512 MiB.
_BALLAST_BYTES = 256 << 20
#: Maximum memory of the machine that is filled.
MOST_BALLAST_BYTES = 4 << 30
#: Bytes beyond the server's limit, which make it refuse writes, and time that ballast outlives a killed chaos.
_OVERFLOW_BYTES = 1 << 20
_SPARE_S = 5.0


@contextmanager
def _needing_redis() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise NotDoneError(f"Redis does not answer: {error}") from error


@dataclass
class Restart(Disturbance):
    """SIGKILL of redis-server; it comes back at the end."""

    kind = Kind.RESTART

    target: str
    kill: Callable[[], int]  #: kills it, and returns its process id
    start: Callable[[], object]  #: starts it again, or does nothing if another program does
    before: Callable[[], object]  #: called right before it is killed
    is_down: bool = False

    def begin(self) -> None:
        with _needing_redis():
            self.before()
            pid = self.kill()
        self.is_down = True
        self.detail = f"process {pid}"

    def end(self) -> None:
        if self.is_down:
            self.start()
        self.is_down = False


@dataclass
class Flush(Disturbance):
    """Removes all keys of the run and all scripts from a server at one instant; keys of other runs stay."""

    kind = Kind.FLUSH
    lasts = False

    target: str
    client: RedisClient
    #: Reads the run's shards on this server, and executes further commands in the same transaction.
    look: Callable[[Callable[[Pipeline], object]], object]

    def begin(self) -> None:
        run = self.client.run

        def empty(pipeline: Pipeline) -> None:
            pipeline.eval(files(__package__).joinpath("empty.lua").read_text(), 1, RUNS, run, *run_pattern(run))
            pipeline.script_flush()

        with _needing_redis():
            self.look(empty)


@dataclass
class Full(Disturbance):
    """Fills a server with ballast, which expires if it is not removed.

    `maxmemory` stays unchanged: the run reads it when it starts, and would refuse to continue with less.
    """

    kind = Kind.FULL

    target: str
    client: RedisClient
    hold_s: float
    keys: list[str] = field(default_factory=list)
    bytes: int = 0

    def begin(self) -> None:
        try:
            self._fill()
        except RedisError as error:
            self.end()
            raise NotDoneError(f"Redis cannot be filled: {error}") from error

    def turn(self) -> None:
        with suppress(RedisError):
            self._fill()

    def end(self) -> None:
        if self.keys:
            # If Redis is away, the keys expire or are gone.
            with suppress(RedisError):
                self.client.execute("UNLINK", *self.keys)
            self.keys = []

    def _fill(self) -> None:
        while True:
            memory: Any = self.client.redis.info("memory")
            room = int(memory["maxmemory"]) - int(memory["used_memory"])
            if room < 0:
                break
            size = min(room + _OVERFLOW_BYTES, _BALLAST_BYTES)
            self.keys.append(self.client.run_keys.ballast(len(self.keys)))
            self.bytes += size
            pipeline = self.client.redis.pipeline()
            pipeline.setrange(self.keys[-1], size - 1, b"\0")  # Redis makes the zeros, nothing is sent
            pipeline.pexpire(self.keys[-1], int(1000 * (self.hold_s + _SPARE_S)))
            pipeline.execute()
        self.detail = f"{self.bytes >> 20} MiB of ballast"


@dataclass
class Shrink(Disturbance):
    """Lowers the memory limit of a server below what it uses, and restores it at the end.

    A process that starts meanwhile may find that its settings do not fit into this server.
    """

    kind = Kind.SHRINK

    target: str
    client: RedisClient
    limit: int = 0

    def begin(self) -> None:
        with _needing_redis():
            memory: Any = self.client.redis.info("memory")
            self.client.execute("CONFIG", "SET", "maxmemory", int(memory["used_memory"]) // 2)
            self.limit = int(memory["maxmemory"])
        self.detail = f"{int(memory['used_memory']) >> 11} KiB, of {self.limit >> 10}"

    def end(self) -> None:
        if self.limit:
            self.client.execute("CONFIG", "SET", "maxmemory", self.limit)
        self.limit = 0


@dataclass
class Cut(Disturbance):
    """Breaks all connections of the run several times a second, including new ones.

    A call that Redis has executed may lose its answer, so its caller repeats it. Nothing must be undone.
    """

    kind = Kind.CUT

    target: str
    client: RedisClient  #: the connection of chaos, which stays
    is_exclusive: bool  #: whether all other connections are the run's; otherwise those of `pids` are cut
    pids: Callable[[], Iterable[int]]  #: returns the processes of the run on this machine
    number: int = 0

    def begin(self) -> None:
        with _needing_redis():
            self._cut()

    def turn(self) -> None:
        with suppress(RedisError):
            self._cut()

    def _cut(self) -> None:
        if self.is_exclusive:
            for kind in ("normal", "pubsub"):
                self.number += int(self.client.execute("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"))
        else:
            addresses = set()  # of the connections of processes, as Redis lists them
            for pid in self.pids():
                with suppress(psutil.Error):
                    found = psutil.Process(pid).net_connections(kind="tcp")
                    addresses |= {f"{each.laddr.ip}:{each.laddr.port}" for each in found if each.raddr}
            text: Any = self.client.execute("CLIENT", "LIST")
            for line in text.decode(errors="replace").splitlines():
                fields = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
                if fields.get("addr") in addresses:
                    self.number += int(self.client.execute("CLIENT", "KILL", "ID", fields["id"]))
        self.detail = f"{self.number} connections"


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
        self.set(0, 0)
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

    def set(self, offset_s: int, delay_ms: int) -> None:
        """Move the clock ahead, and make each sync take longer; 0 and 0 undo both."""
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
        self._machine.set(JUMP_S if self.kind is Kind.CLOCK else 0, SYNC_MS if self.kind is Kind.DISK else 0)

    def end(self) -> None:
        self._machine.set(0, 0)
