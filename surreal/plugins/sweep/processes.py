"""Runs of a sweep as processes, and how many fit at once."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import redis

from surreal.base.errors import SurrealError
from surreal.base.system.process import count_cores
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server import owned_exec
from surreal.run.launch.supervise import last_error_line
from surreal.run.process import registry
from surreal.run.process.finding import open_client
from surreal.run.process.roles import EVAL, ROLES

logger = logging.getLogger(__name__)

#: Memory of a process without experience, bytes: torch, the model, environments of the usual size.
_PROCESS_BYTES = 256 << 20
#: Share of the free memory that runs may use; other programs need some too.
_MEMORY_SHARE = 0.9


class Room(NamedTuple):
    """Cores and memory that a run needs or a machine has."""

    cores: int
    bytes: int


def need_of(config: Config) -> Room:
    """Estimate the need of a run: a core for each process that always computes, and memory for its experience twice.

    The experience is in Redis, and mirrored in the learner.
    """
    processes = sum(role.count(config) for role in ROLES)
    ranks = config.learner.ranks - 1
    busy = processes - EVAL.count(config) + ranks
    experience = config.learner.gradients_max_bytes if config.has_parameter_servers else config.replay.max_bytes
    return Room(max(1, busy), 2 * experience + (processes + ranks + 1) * _PROCESS_BYTES)


def room_here() -> Room:
    """Measure the free cores and memory of this machine or container."""
    from surreal.rlx.server.admission import available_bytes  # imports gymnasium

    return Room(count_cores(), int(_MEMORY_SHARE * max(0, available_bytes())))


def fits(need: Room, running: Sequence[Room], room: Room, parallel: int | None) -> bool:
    """Whether one more run fits next to the running ones; a single one always does.

    `room` was free before any run started; `parallel` is the maximum number of runs, whatever they need.
    """
    if not running:
        return True
    if parallel is not None:
        return len(running) < parallel
    needs = (need, *running)
    return sum(each.cores for each in needs) <= room.cores and sum(each.bytes for each in needs) <= room.bytes


def num_at_once(need: Room, room: Room, parallel: int | None) -> int:
    """Count how many runs with the same need fit at once."""
    count = 1
    while count < (parallel or room.cores) and fits(need, [need] * count, room, parallel):
        count += 1
    return count


class LaunchedRun(subprocess.Popen[bytes]):
    """A run's launcher, a process on this machine, and the file of its output."""

    console: Path

    def interrupt(self) -> None:
        """Send Ctrl-C: the first drains the run, the second hurries it, the third kills it."""
        self.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        super().kill()
        self.wait()

    def last_words(self) -> str:
        """Return its last line of output, or of an error if there was one."""
        return last_error_line(self.console)


class Launching:
    """Starts runs, and reaches them through the Redis that all of them use.

    It must be used in the main thread, because runs drain when the thread that started them ends.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def start(self, arguments: Sequence[str], console: Path) -> LaunchedRun:
        """Start `surreal run ARGUMENTS`, whose output goes to the file `console`."""
        is_watched = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
        owned = [owned_exec.__file__, "exec" if is_watched else "watch", str(os.getpid())]
        command = [sys.executable, "-m", "surreal", "run", *arguments, "--redis", self._address]
        with console.open("ab") as file:
            process = LaunchedRun(
                [sys.executable, "-I", "-S", *owned, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to the sweep, which interrupts them
            )
        process.console = console
        return process

    def stop(self, run: str, reason: str) -> None:
        """Ask a run to drain and end, as `surreal stop` does."""
        self._tell(run, lambda client: registry.request_stop(client, reason), "run %s could not be asked to stop: %s")

    def forget(self, run: str) -> None:
        """Remove the keys of a run from Redis."""
        self._tell(run, RedisClient.delete_run, "the keys of run %s stay in Redis: %s")

    def _tell(self, run: str, action: Callable[[RedisClient], object], problem: str) -> None:
        try:
            with open_client(self._address, run) as client:
                action(client)
        except (SurrealError, redis.RedisError) as error:
            logger.warning(problem, run, error)
