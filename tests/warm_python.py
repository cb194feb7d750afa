"""`WarmPython`: Pythons that have imported what commands need before they are started.

`import surreal.run.roles.agent` is four seconds of a core, and the tests start hundreds of commands, most of which
import it twice: in the launcher, and in its fork server. A warm Python imports it once for all tests of a worker.

What a forked command has of its own: session, folder, environment, arguments, standard streams, signal handlers, random
numbers; it ends with the exit code or signal, the exit handlers and the output that a Python of its own would have, but
modules are not taken apart. `/proc` shows the helper's command line and environment for it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surreal.run.launch.starting import NO_THREADS
from tests.servers import die_with_parent
from tests.warm_helper import receive

#: What commands and the processes of a run import, at once or when torch makes an optimizer. What is run as `__main__`
#: is loaded again.
MODULES = (
    "surreal.cli",
    "surreal.run.roles.agent",
    "surreal.run.roles.eval",
    "surreal.run.roles.learner",
    "surreal.run.session.offline",
    "surreal.run.roles.rlx_client",
    "surreal.run.roles.rlx_server",
    "surreal.run.view.play",
    "surreal.plugins.clusters.redis.server",
    "surreal.plugins.runs.status",
    "surreal.run.launch.check",
    "surreal.run.launch.collecting",
    "surreal.run.launch.launcher",
    "gymnasium.envs.classic_control.cartpole",
    "tensorboardX",
    "torch._dynamo",
)
_ROOT = Path(__file__).parents[1]
#: Where torch puts what its optimizers would leave among the temporary files.
_CACHE = {"TORCHINDUCTOR_CACHE_DIR": str(_ROOT / ".cache" / "torch")}
#: Longest import of everything on a busy machine, s.
_READY_TIMEOUT_S = 300.0

#: Descriptors: standard input, output and error.
Streams = tuple[int, int, int]


def environment_of_a_user() -> dict[str, str]:
    """Variables with which commands run: what pytest and tests/conftest.py set would change what they do and leave."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SURREAL_", "TORCHINDUCTOR_"))}
    return {**kept, "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "", "OMP_NUM_THREADS": "1"}


def spawn(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], streams: Streams
) -> subprocess.Popen[bytes]:
    """Start a Python of its own, in a session of its own; see `WarmPython.start`."""
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        start_new_session=True,
        preexec_fn=_begin,  # noqa: PLW1509 - takes no lock
    )


class WarmPython:
    """A helper that is started when it is first needed, and what it forks; all of it ends with this process.

        with WarmPython() as python:
            process = python.start(["-m", "surreal", "--help"], folder=..., environment=..., streams=(0, 1, 2))

    Args:
        modules: what the helper imports.
    """

    def __init__(self, modules: Sequence[str] = MODULES) -> None:
        self._modules = modules
        self._helper: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket

    def start(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        streams: Streams,
    ) -> WarmProcess | subprocess.Popen[bytes]:
        """Fork a process; elsewhere than on Linux, `spawn` it.

        Args:
            arguments: as those of `python`: `-m MODULE ...`, `-c PROGRAM ...` or `FILE ...`.
            folder: to work in.
            environment: all its variables. What libraries read when they are imported comes too late.
            streams: its standard input, output and error; they can be closed here afterwards.
        """
        if sys.platform != "linux":
            return spawn(arguments, folder=folder, environment=environment, streams=streams)
        if self._helper is None:
            self._start_helper()
        pid = self.ask(["start", list(arguments), str(folder), dict(environment)], streams)
        return WarmProcess(self, pid, arguments)

    def ask(self, message: Any, descriptors: Sequence[int] = ()) -> Any:
        """Tell the helper something, and wait for its answer."""
        socket.send_fds(self._channel, [json.dumps(message).encode()], descriptors)
        return self._receive()

    def _start_helper(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_READY_TIMEOUT_S)
        with theirs:
            self._helper = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_helper", str(theirs.fileno()), *self._modules],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**environment_of_a_user(), **NO_THREADS, **_CACHE},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                preexec_fn=_begin,  # noqa: PLW1509 - takes no lock
            )
        self._receive()

    def _receive(self) -> Any:
        message, _ = receive(self._channel)
        if message is None:
            raise RuntimeError("the warm Python has ended")
        return message

    def __enter__(self) -> WarmPython:
        return self

    def __exit__(self, *_: object) -> None:
        if self._helper is not None:
            self._channel.close()
            self._helper.wait()


class WarmProcess:
    """A process that the helper forked, as `subprocess.Popen` has it.

    Args:
        python: whose helper is its parent, and keeps its end until it is asked for.
        pid: its id.
        args: those it was started with.
    """

    def __init__(self, python: WarmPython, pid: int, args: Sequence[str]) -> None:
        self.pid, self.args = pid, args
        self.returncode: int | None = None  #: None while it runs, -N if signal N ended it
        self._python = python
        self._descriptor = os.pidfd_open(pid)
        self._end = select.poll()
        self._end.register(self._descriptor, select.POLLIN)

    def poll(self) -> int | None:
        """Look whether it has ended; returns `returncode`."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: not within so many s.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and self._end.poll(None if timeout_s is None else 1000 * timeout_s):
            self.returncode = int(self._python.ask(["reap", self.pid]))
            os.close(self._descriptor)
        return self.returncode


def _begin() -> None:
    """Be as a terminal starts it, even if tests run in the background of a script: Ctrl-C is not ignored."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
