"""Start the processes of a run: forked from a helper that has imported what they need, or one Python each.

Either way, a process is a child of the launcher in its own session, so that Ctrl-C reaches the launcher alone. Its
console goes into a file. Called from the main thread only: a child is told to end when its parent *thread* ends.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from surreal.run.process.interrupts import checkpoint_signal_held, child_environment

logger = logging.getLogger(__name__)


_PR_SET_CHILD_SUBREAPER = 36
#: Longest import of everything, on a busy machine with a slow disk, s.
_READY_TIMEOUT_S = 300.0
#: Keeps OpenBLAS and an allocator of Arrow from starting threads when they are imported.
NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class ForkedProcess:
    """A child that this process adopted; nothing else may wait for its `pid`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: Any = None  #: None while it runs; -N if signal N ended it

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return int(self.returncode)

    def send_signal(self, sig: int, /) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


#: A child process.
Process = subprocess.Popen[bytes] | ForkedProcess


class Spawner:
    """Starts the `main(arguments)` of a module as a process, in a new Python."""

    def start(self, module: str, arguments: Sequence[str], *, console: Path, environment: Mapping[str, str]) -> Process:
        """Start the process; its output is appended to `console`, and `environment` to this process's variables."""
        with console.open("ab") as file, checkpoint_signal_held():
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=child_environment(environment),
                start_new_session=True,
            )


class ForkServer(Spawner):
    """Starts processes by forking a helper that imports modules beforehand; if that fails, one by one.

        with ForkServer(["surreal.run.roles.agent"]) as starter:   # the helper begins to import
            ...                                               # do something else
            starter.start("surreal.run.roles.agent", arguments, console=..., environment=...)

    The helper is not the parent of forked processes. If it dies, the next start notices that and goes without it.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = list(modules)
        self._helper: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._is_ready = False

    def __enter__(self) -> Self:
        if sys.platform != "linux" or not _adopt_orphans(True):
            return self
        ours, theirs = socket.socketpair()
        with theirs, checkpoint_signal_held():
            arguments = [str(theirs.fileno()), str(os.getpid()), *self._modules]
            self._helper = subprocess.Popen(
                [sys.executable, "-m", "surreal.run.launch.fork_server", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=child_environment(NO_THREADS),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        ours.settimeout(_READY_TIMEOUT_S)
        self._channel = ours
        return self

    def __exit__(self, *_: object) -> None:
        if self._helper is not None:
            self._hang_up()
            _adopt_orphans(False)

    @property
    def pid(self) -> int | None:
        return None if self._helper is None or self._channel is None else self._helper.pid

    def start(self, module: str, arguments: Sequence[str], *, console: Path, environment: Mapping[str, str]) -> Process:
        """Fork a process as soon as the helper is ready; see `Spawner.start`."""
        if self._channel is not None:
            request = {
                "module": module,
                "arguments": list(arguments),
                "environment": child_environment(environment),
                "console": str(console.absolute()),
            }
            try:
                return ForkedProcess(self._ask(self._channel, request))
            except (OSError, ValueError) as error:
                self._hang_up()
                logger.warning("continuing without the fork server, processes start more slowly: %s", error)
        return super().start(module, arguments, console=console, environment=environment)

    def _ask(self, channel: socket.socket, request: Mapping[str, Any]) -> int:
        if not self._is_ready:
            _receive(channel)
            self._is_ready = True
        channel.sendall(json.dumps(request).encode() + b"\n")
        pid = _receive(channel)["pid"]
        if pid is None:
            raise OSError("it cannot fork")
        return int(pid)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._helper is not None:
            self._helper.kill()
            self._helper.wait()


def _receive(channel: socket.socket) -> dict[str, Any]:
    """Read one short line; more is never sent at once."""
    line = b""
    while not line.endswith(b"\n"):
        part = channel.recv(4096)
        if not part:
            raise ConnectionError("it ended")
        line += part
    found: dict[str, Any] = json.loads(line)
    return found


def _adopt_orphans(is_wanted: bool) -> bool:
    """Start or stop adopting orphans of descendants; returns whether the kernel supports it."""
    try:
        return int(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False
