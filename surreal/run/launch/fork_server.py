"""The fork server's own process: it imports the modules of a run's roles once, and forks the processes.

    python -m surreal.run.launch.fork_server CHANNEL LAUNCHER_PID MODULE...

`starting.ForkServer` starts it and talks to it over a socket, one JSON object per line: "ready" when the modules are
imported, then the id of a new process for each request. Such a process is the *launcher's* child: an intermediate
process forks it and ends at once, and the launcher adopts orphans below it (PR_SET_CHILD_SUBREAPER). So exit codes,
signals and the death of the launcher are the same as if the launcher had spawned it.

Nothing but imports happens here, so a fork breaks nothing: there is no thread, no connection, no computation. Linux
only. See docs/adr/0006-fork-server.md.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from surreal.base.system.process import die_with_parent


def main(argv: Sequence[str]) -> int:
    """Serve until the launcher closes the channel; in a forked process, return what its module's `main` returns."""
    leave = _Leave()
    atexit.register(leave)  # registered first, called last
    channel = socket.socket(fileno=int(argv[0]))
    die_with_parent(signal.SIGKILL, parent_pid=int(argv[1]))
    gc.disable()  # modules make no garbage while they load
    for module in argv[2:]:
        importlib.import_module(module)
    gc.enable()
    gc.freeze()  # children share these objects' memory while no collection writes into it
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"{threads} threads run after the imports; a fork would copy one of them only")
    _send(channel, {"ready": True})
    request = _serve(channel)
    channel.close()
    leave.code = 0 if request is None else _run(request)
    return leave.code


class _Leave:
    """Ends the process after all other exit handlers: tearing torch down would take half a second."""

    code = 1

    def __call__(self) -> None:
        with suppress(OSError):  # the disk of its console's file may be full
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(self.code)


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; returns the request in the new process, None in the server at the end."""
    with channel.makefile("rb") as lines:
        for line in lines:
            if _fork(channel):
                request: dict[str, Any] = json.loads(line)
                return request
    return None


def _fork(channel: socket.socket) -> bool:
    """Fork a child of the launcher and send its id; returns whether this is the child."""
    ours, theirs = socket.socketpair()
    between = os.fork()
    if between == 0:
        ours.close()
        try:
            if os.fork() != 0:
                os._exit(0)
        except OSError:
            os._exit(1)
        os.setsid()
        theirs.sendall(str(os.getpid()).encode())
        if not theirs.recv(1):
            # The server died, and the launcher may not know this process, which must not run next to its replacement.
            os.kill(os.getpid(), signal.SIGKILL)
        theirs.close()
        return True
    theirs.close()
    # The intermediate process has ended, so the launcher is the child's parent before either knows the other.
    is_forked = os.waitpid(between, 0)[1] == 0
    with ours:
        _send(channel, {"pid": int(ours.recv(32)) if is_forked else None})
        if is_forked:
            ours.sendall(b"!")
    return False


def _run(request: dict[str, Any]) -> int:
    module, arguments = str(request["module"]), [str(argument) for argument in request["arguments"]]
    _redirect(os.devnull, os.O_RDONLY, 0)
    for descriptor in (1, 2):
        _redirect(request["console"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [module, *arguments]
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else all processes would share numpy's global state
    try:
        return int(importlib.import_module(module).main(arguments))
    except SystemExit as end:  # wrong arguments
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def _redirect(path: str, flags: int, descriptor: int) -> None:
    opened = os.open(path, flags, 0o666)
    os.dup2(opened, descriptor)
    os.close(opened)


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
