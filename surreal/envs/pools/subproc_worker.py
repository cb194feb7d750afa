"""Worker processes of a `SubprocEnvPool`, which step environments into shared memory, and their handles in the pool.

The pipe carries short messages without pickle:

    parent -> worker    b"s" step with the actions in shared memory; b"q" close and end
    worker -> parent    b"r" + has_mask (1 byte) + number of lost episodes (int64) + indices of these, and of those that
                        ended (int64 each): rows are written
                        b"e" + text: an environment raised; the first line is the reason, the rest the traceback
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.system.logs import WaitNotice
from surreal.base.system.process import die_with_parent
from surreal.envs.pools.base import OnError
from surreal.envs.pools.columns import Columns
from surreal.envs.pools.env_list import EnvFactory, EnvList

logger = logging.getLogger(__name__)

_EXIT_TIMEOUT_S = 5.0
STEP, QUIT, READY, FAILED = b"s", b"q", b"r", b"e"


@dataclass(frozen=True)
class SharedMemory:
    """Arrays in the memory of all processes of a pool; they have no name, so nothing stays behind."""

    obs_spec: ObsSpec
    specs: tuple[ArraySpec, ...]  #: the columns, then the actions
    buffers: tuple[Any, ...]  #: one multiprocessing RawArray each
    num_envs: int

    @classmethod
    def allocate(
        cls, context: Any, obs_spec: ObsSpec, action: ArraySpec, num_envs: int, mask_width: int
    ) -> SharedMemory:
        """Make the arrays; workers get this object when they are spawned."""
        specs = (*Columns.specs(obs_spec, mask_width, action), action)
        buffers = tuple(context.RawArray(ctypes.c_uint8, max(1, num_envs * spec.nbytes)) for spec in specs)
        return cls(obs_spec, specs, buffers, num_envs)

    def views(self) -> tuple[Columns, NDArray[Any]]:
        """View the columns and the actions [num_envs, *shape]."""
        arrays: list[NDArray[Any]] = []
        for spec, buffer in zip(self.specs, self.buffers, strict=True):
            used = np.frombuffer(buffer, np.uint8)[: self.num_envs * spec.nbytes]
            arrays.append(used.view(spec.dtype).reshape(self.num_envs, *spec.shape))
        return Columns.of(arrays[:-1]), arrays[-1]


class WorkerHandle:
    """The pool's handle of the worker for environments `start` to `stop - 1`."""

    def __init__(self, index: int, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.name = f"worker {index} (environments {start}-{stop - 1})"
        self.incarnation = 0
        #: is_busy: whether the worker has to answer
        #: is_starting: whether it has not answered yet
        self.is_busy = self.is_starting = True
        self.busy_since = 0.0  #: monotonic time of the last message to it, s
        self.notice = WaitNotice(logger)  #: reports that the worker does not answer
        self._index = index
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The pool's end of the pipe."""
        if self._connection is None:
            raise EnvError(f"{self.name} is not running")
        return self._connection

    @property
    def pid(self) -> int | None:
        """Process id; None if it is not running."""
        return None if self._process is None else self._process.pid

    def launch(
        self,
        context: SpawnContext,
        env_fns: Sequence[EnvFactory],
        seeds: Sequence[int],
        shared: SharedMemory,
        on_error: OnError,
        interventions: bool,
    ) -> None:
        """Start the process without waiting for its environments."""
        main_module = nullcontext() if _is_main_needed(env_fns) else _without_main()
        ours, theirs = context.Pipe()
        # The kernel ties a child to the thread that spawned it, which may end before this process.
        is_main = threading.current_thread() is threading.main_thread()
        arguments = (theirs, env_fns, seeds, shared, self.start, os.getpid(), is_main, on_error, interventions)
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
        """Send a message; if the worker has ended, the next read of its pipe fails."""
        try:
            if self._connection is not None:
                self._connection.send_bytes(message)
        except OSError:
            logger.debug("%s is gone", self.name)
        self.is_busy = True
        self.busy_since = time.monotonic()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def end(self, deadline_s: float | None = None) -> int | None:
        """Wait for the end of the process until the deadline (default: five seconds), then kill it."""
        if self._process is None:
            return None
        until = time.monotonic() + _EXIT_TIMEOUT_S if deadline_s is None else deadline_s
        self._process.join(max(0.0, until - time.monotonic()))
        if self._process.is_alive():
            logger.warning("%s did not end and is killed", self.name)
            self._process.kill()
            self._process.join()
        exit_code = self._process.exitcode
        self._process.close()
        self.connection.close()
        self._process = self._connection = None
        return exit_code


def run_worker(
    connection: Connection,
    env_fns: Sequence[EnvFactory],
    seeds: Sequence[int],
    shared: SharedMemory,
    start: int,
    parent_pid: int,
    follow_thread: bool,
    on_error: OnError,
    interventions: bool,
) -> None:
    """Serve the environments from `start` on until the pool sends QUIT or ends."""
    # Ctrl-C reaches the whole terminal, but the pool decides when its environments end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent_pid=parent_pid, follow_thread=follow_thread)
    with suppress(EOFError, ConnectionError), connection:
        try:
            columns, actions = shared.views()
            stop = start + len(env_fns)
            made = EnvList(env_fns, seeds, columns.rows(start, stop), on_error=on_error, interventions=interventions)
            with closing(made) as envs:
                if envs.obs_spec != shared.obs_spec:
                    seen = envs.observation_space
                    raise EnvError(f"environment {start} has observations {seen}, unlike environment 0")
                envs.reset()
                ended: list[int] = []
                while True:
                    told = np.array([len(envs.lost), *envs.lost, *ended], np.int64)
                    connection.send_bytes(READY + bytes([envs.has_mask]) + told.tobytes())
                    if connection.recv_bytes() == QUIT:
                        return
                    ended = envs.step(actions[start:stop])
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
            text = f"{' '.join(reason.split())}\n{traceback.format_exc()}"
            connection.send_bytes(FAILED + text.encode("utf-8", "replace"))


def _is_main_needed(env_fns: Sequence[EnvFactory]) -> bool:
    """Whether the functions are in the program's main module."""
    try:
        return b"__main__" in bytes(ForkingPickler.dumps(list(env_fns)))
    except Exception as error:
        raise EnvError(f"environments in processes need importable functions to make them: {error}") from error


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a spawned process from importing the program's main module, which loads torch in an agent."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file
