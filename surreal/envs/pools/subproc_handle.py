"""A worker process of a `SubprocEnvPool`, as its owner holds it: started, told, replaced, ended."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler

from surreal.base.errors import EnvError
from surreal.base.liveness.wait_notice import WaitNotice
from surreal.envs.pools.env_list import EnvFactory
from surreal.envs.pools.mending import OnError
from surreal.envs.pools.subproc_worker import SharedMemory, run_worker

logger = logging.getLogger(__name__)

_EXIT_TIMEOUT_S = 5.0


class WorkerHandle:
    """The environments `start` to `stop - 1` in a process of their own.

    Attributes:
        is_busy: an answer of the worker is due.
        is_starting: none of its environments was handed over yet.
        busy_since: monotonic time in s of what it was told last.
        notice: says that the worker does not answer.
    """

    def __init__(self, index: int, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.name = f"worker {index} (environments {start}-{stop - 1})"
        self.incarnation = 0
        self.is_busy = self.is_starting = True
        self.busy_since = 0.0
        self.notice = WaitNotice(logger)
        self._index = index
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The owner's end of the pipe."""
        if self._connection is None:
            raise EnvError(f"{self.name} is not running")
        return self._connection

    @property
    def pid(self) -> int | None:
        """Process id, None if it is not running."""
        return None if self._process is None else self._process.pid

    def launch(
        self,
        context: SpawnContext,
        env_fns: Sequence[EnvFactory],
        seeds: Sequence[int],
        shared: SharedMemory,
        on_error: OnError,
    ) -> None:
        """Start the process; returns before its environments are there.

        Args:
            context: of the module multiprocessing.
            env_fns: of the environments of this worker.
            seeds: one for each of them.
            shared: of the whole pool.
            on_error: what to do when one of them raises an exception.

        Raises:
            EnvError: the functions cannot be sent to another process.
        """
        main_module = nullcontext() if _is_main_needed(env_fns) else _without_main()
        ours, theirs = context.Pipe()
        # The kernel ties a child to the thread that spawned it, which may end before this process does.
        is_main = threading.current_thread() is threading.main_thread()
        arguments = (theirs, env_fns, seeds, shared, self.start, os.getpid(), is_main, on_error)
        name = f"surreal-env-worker-{self._index}"
        process = context.Process(target=run_worker, args=arguments, name=name, daemon=True)
        try:
            with main_module:
                process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._process, self._connection = process, ours
        self.is_busy = self.is_starting = True
        self.busy_since = time.monotonic()

    def tell(self, message: bytes) -> None:
        """Send a message; if the worker is gone, its pipe says so to the next one who reads it."""
        try:
            if self._connection is not None:
                self._connection.send_bytes(message)
        except OSError:
            logger.debug("%s is gone", self.name)
        self.is_busy = True
        self.busy_since = time.monotonic()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()

    def end(self, deadline_s: float | None = None) -> int | None:
        """Wait for the end of the process until the deadline, then kill it; returns its exit code.

        Args:
            deadline_s: monotonic time; None is five seconds from now.
        """
        if self._process is None:
            return None
        until = time.monotonic() + _EXIT_TIMEOUT_S if deadline_s is None else deadline_s
        self._process.join(max(0.0, until - time.monotonic()))
        if self._process.is_alive():
            logger.warning("%s did not end by itself and is killed", self.name)
            self._process.kill()
            self._process.join()
        exit_code = self._process.exitcode
        self._process.close()
        self.connection.close()
        self._process = self._connection = None
        return exit_code


def _is_main_needed(env_fns: Sequence[EnvFactory]) -> bool:
    """Tell whether the functions live in the program's main module."""
    try:
        return b"__main__" in bytes(ForkingPickler.dumps(list(env_fns)))
    except Exception as error:
        raise EnvError(f"environments in processes need importable functions to make them: {error}") from error


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a spawned process from importing the program's main module.

    A worker that needs nothing of it would load what an agent's program loads: torch.
    """
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file
