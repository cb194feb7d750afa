"""One run of a sweep: a `surreal run` of its own, started, told to end, and looked at when it has ended."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import redis

from surreal.base.errors import SurrealError
from surreal.distributed.server import owned_exec
from surreal.run.launch.supervise import last_error_line
from surreal.run.process import registry
from surreal.run.view.listing import open_client

logger = logging.getLogger(__name__)


class RunProcess(Protocol):
    """A run's launcher, as the sweep sees it."""

    def poll(self) -> int | None:
        """Exit code, None while it runs."""

    def interrupt(self) -> None:
        """Ctrl-C: once it drains, twice it hurries, three times it kills."""

    def kill(self) -> None:
        """End it for good, and wait for that."""

    def last_words(self) -> str:
        """What it said last, of an error if there was one."""


class Runner(Protocol):
    """Starts runs, and reaches them through their Redis."""

    def start(self, arguments: Sequence[str], console: Path) -> RunProcess:
        """Start `surreal run ARGUMENTS`, whose output goes to a file."""

    def stop(self, run: str, reason: str) -> None:
        """Have a run end in order, as `surreal stop` does."""

    def forget(self, run: str) -> None:
        """Remove what a run that does not go on has left in Redis."""


class LaunchedRun:
    """A launcher as a process of this machine.

    Args:
        process: of the launcher.
        console: what it writes.
    """

    def __init__(self, process: subprocess.Popen[bytes], console: Path) -> None:
        self._process = process
        self._console = console

    def poll(self) -> int | None:
        return self._process.poll()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        return last_error_line(self._console)


class Launching:
    """Starts real runs. From the main thread only: they are told to drain when the thread that started them ends.

    Args:
        address: of the Redis that all of them use.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def start(self, arguments: Sequence[str], console: Path) -> LaunchedRun:
        is_watched = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
        owned = [owned_exec.__file__, "exec" if is_watched else "watch", str(os.getpid())]
        command = [sys.executable, "-m", "surreal", "run", *arguments, "--redis", self._address]
        with console.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", *owned, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the sweep, which tells them
            )
        return LaunchedRun(process, console)

    def stop(self, run: str, reason: str) -> None:
        try:
            with open_client(self._address, run) as client:
                registry.request_stop(client, reason)
        except (SurrealError, redis.RedisError) as error:
            logger.warning("run %s was not told to stop: %s", run, error)

    def forget(self, run: str) -> None:
        try:
            with open_client(self._address, run) as client:
                client.delete_run()
        except (SurrealError, redis.RedisError) as error:
            logger.warning("the keys of run %s stay in Redis: %s", run, error)
