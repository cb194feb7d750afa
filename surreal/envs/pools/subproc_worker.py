"""The process at the other end of a `SubprocEnvPool`: steps its environments into shared memory when told to.

Over its pipe go short messages without pickle:

    parent -> worker    b"s" step with the actions in shared memory; b"q" close and end
    worker -> parent    b"r" + has_mask (1 byte) + how many episodes were lost (int64) + indices of these, and of those
                        that ended (int64 each): rows are written
                        b"e" + text: an environment raised; first line is the reason, the rest the traceback
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.system.process import die_with_parent
from surreal.envs.pools.columns import Columns
from surreal.envs.pools.env_list import EnvFactory, EnvList
from surreal.envs.pools.mending import OnError

STEP, QUIT, READY, FAILED = b"s", b"q", b"r", b"e"


@dataclass(frozen=True)
class SharedMemory:
    """Arrays that all processes of a pool see; anonymous, so nothing is left behind however they end."""

    obs_spec: ObsSpec
    specs: tuple[ArraySpec, ...]  #: the columns, then the actions
    buffers: tuple[Any, ...]  #: one multiprocessing RawArray each
    num_envs: int

    @classmethod
    def allocate(
        cls, context: Any, obs_spec: ObsSpec, action: ArraySpec, num_envs: int, mask_width: int
    ) -> SharedMemory:
        """Make the arrays; the processes that shall see them get this object when they are spawned."""
        specs = (*Columns.specs(obs_spec, mask_width), action)
        buffers = tuple(context.RawArray(ctypes.c_uint8, max(1, num_envs * spec.nbytes)) for spec in specs)
        return cls(obs_spec, specs, buffers, num_envs)

    def views(self) -> tuple[Columns, NDArray[Any]]:
        """View the columns and the actions [num_envs, *shape]."""
        arrays: list[NDArray[Any]] = []
        for spec, buffer in zip(self.specs, self.buffers, strict=True):
            used = np.frombuffer(buffer, np.uint8)[: self.num_envs * spec.nbytes]
            arrays.append(used.view(spec.dtype).reshape(self.num_envs, *spec.shape))
        return Columns.of(arrays[:-1]), arrays[-1]


def run_worker(
    connection: Connection,
    env_fns: Sequence[EnvFactory],
    seeds: Sequence[int],
    shared: SharedMemory,
    start: int,
    parent_pid: int,
    follow_thread: bool,
    on_error: OnError,
) -> None:
    """Serve the environments `start` to `start + len(env_fns)` until told to quit, or until the owner is gone."""
    # Ctrl-C reaches the whole terminal; it is the owner who decides when its environments end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent_pid=parent_pid, follow_thread=follow_thread)
    with contextlib.suppress(EOFError, ConnectionError), connection:
        try:
            _serve(connection, env_fns, seeds, shared, start, on_error)
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
            text = f"{' '.join(reason.split())}\n{traceback.format_exc()}"
            connection.send_bytes(FAILED + text.encode("utf-8", "replace"))


def _serve(
    connection: Connection,
    env_fns: Sequence[EnvFactory],
    seeds: Sequence[int],
    shared: SharedMemory,
    start: int,
    on_error: OnError,
) -> None:
    columns, actions = shared.views()
    stop = start + len(env_fns)
    envs = EnvList(env_fns, seeds, columns.rows(start, stop), on_error=on_error)
    try:
        if envs.obs_spec != shared.obs_spec:
            raise EnvError(f"environment {start} has observations {envs.observation_space}, unlike environment 0")
        envs.reset()
        ended: list[int] = []
        while True:
            told = np.array([len(envs.lost), *envs.lost, *ended], np.int64)
            connection.send_bytes(READY + bytes([envs.has_mask]) + told.tobytes())
            if connection.recv_bytes() == QUIT:
                return
            ended = envs.step(actions[start:stop])
    finally:
        envs.close()
