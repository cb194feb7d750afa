"""The program of a `WarmPython`: imports what commands need, once, and forks each command off.

    python -m tests.warm_helper CHANNEL MODULE...

Each message on the channel is answered by one. ["start", arguments, folder, environment] comes with three
descriptors, to be the standard input, output and error: a process is forked that does what `python ARGUMENTS` would,
and its id is the answer. ["reap", id] waits for the end of such a process, and its exit code, or minus the signal, is
the answer.

What launches a run starts a fork server, which would import everything again. So each command gets a template: a second
process, forked before it does anything, which becomes its fork server when it asks for one.

As in `surreal.run.launch.fork_server`, nothing but imports happens here before a fork: no thread, no
connection, no computation. Linux only.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

from surreal.base.system.process import die_with_parent
from surreal.run.launch import starting as forking
from surreal.run.launch.starting import ForkedProcess

_FORK_SERVER = "surreal.run.launch.fork_server"
#: Most bytes of a message: an environment, or a program in an argument.
_MOST_BYTES = 1 << 20


def main(channel: socket.socket, modules: Sequence[str]) -> None:
    """Serve until the owner hangs up; in a forked process, do what it was forked for."""
    leave = _Leave()
    atexit.register(leave)  # first, so that it is called last
    gc.disable()  # nothing is garbage while modules are loaded
    for module in modules:
        importlib.import_module(module)
    gc.enable()
    gc.freeze()  # the children share these objects' memory as long as no collection writes into it
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"{threads} threads run after the imports; a fork would copy one of them only")
    _answer(channel, "ready")
    request = _serve(channel)
    if request is None:
        leave.code = 0
        return
    arguments, folder, environment = request
    os.chdir(folder)
    _take(environment)
    leave.template = template = _Template()
    names = {"Popen": template.popen, "DEVNULL": subprocess.DEVNULL, "STDOUT": subprocess.STDOUT}
    forking.subprocess = SimpleNamespace(**names)  # type: ignore[attr-defined]
    try:
        _run(*arguments)
        leave.code = 0
    except SystemExit as end:
        leave.code = _exit_code(end)
    except KeyboardInterrupt:
        leave.code = -signal.SIGINT
        raise


def receive(channel: socket.socket) -> tuple[Any, list[int]]:
    """Wait for a message and the descriptors that come with it; None is the end."""
    text, descriptors, _, _ = socket.recv_fds(channel, _MOST_BYTES, 3)
    return (json.loads(text) if text else None), descriptors


class _Leave:
    """Ends the process when all other exit handlers were called: taking torch apart would cost half a second.

    Attributes:
        code: what the process ends with; 1 if an exception ends it; minus a signal if that is to end it.
        template: is not to outlive the command.
    """

    code = 1
    template: _Template | None = None

    def __call__(self) -> None:
        if self.template is not None:
            self.template.end()
        with suppress(OSError):  # its disk may be full, or nobody there to read
            sys.stdout.flush()
            sys.stderr.flush()
        if self.code < 0:
            signal.signal(-self.code, signal.SIG_DFL)
            os.kill(os.getpid(), -self.code)
        os._exit(self.code)


class _Template:
    """A process that becomes the fork server of its parent when that asks for one."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        owner = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._channel.close()
            die_with_parent(signal.SIGKILL, parent_pid=owner)
            _become_fork_server(theirs)
        theirs.close()
        self._process = _Killable(pid)
        self._is_taken = False

    def popen(self, command: Sequence[str], **options: Any) -> Any:
        """What a launcher has for `subprocess.Popen`: the first fork server is forked, other programs are started."""
        if self._is_taken or list(command[1:3]) != ["-m", _FORK_SERVER]:
            return subprocess.Popen(command, **options)
        self._is_taken = True
        message = json.dumps([command[4:], options["env"]]).encode()
        socket.send_fds(self._channel, [message], options["pass_fds"])
        return self._process

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class _Killable(ForkedProcess):
    """The rest of what is needed of a `subprocess.Popen`."""

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _serve(channel: socket.socket) -> list[Any] | None:
    """Answer until the end; returns what to do in a forked process, None in the helper."""
    helper = os.getpid()
    while True:
        message, descriptors = receive(channel)
        match message:
            case None:
                return None
            case ["start", *request]:
                pid = os.fork()
                if pid == 0:
                    channel.close()
                    os.setsid()
                    die_with_parent(signal.SIGKILL, parent_pid=helper)
                    _redirect(descriptors)
                    return request
                for descriptor in descriptors:
                    os.close(descriptor)
                _answer(channel, pid)
            case ["reap", pid]:
                _answer(channel, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _become_fork_server(channel: socket.socket) -> None:
    message, descriptors = receive(channel)
    channel.close()
    if message is None:
        os._exit(0)
    arguments, environment = message
    os.setsid()
    _redirect([os.open(os.devnull, os.O_RDWR) for _ in range(3)])
    _take(environment)
    _run_module(_FORK_SERVER, str(descriptors[0]), *arguments)


def _redirect(descriptors: Sequence[int]) -> None:
    """Make these the standard input, output and error."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _take(environment: Mapping[str, str]) -> None:
    """Have these variables and nothing that comes of others."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # unseeded: else all processes would share numpy's global generator


def _run(first: str, *rest: str) -> None:
    """Do what `python FIRST REST...` does."""
    if first == "-m":
        _run_module(*rest)
    elif first == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = module = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(module))
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def _run_module(name: str, *arguments: str) -> None:
    sys.path[0] = os.getcwd()
    sys.argv = [name, *arguments]
    # It may not be loaded already under its other name; of a package, only what it runs.
    sys.modules.pop(f"{name}.__main__" if hasattr(sys.modules.get(name), "__path__") else name, None)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _exit_code(end: SystemExit) -> int:
    """What Python makes of it: nothing is 0, words are printed."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1


def _answer(channel: socket.socket, message: Any) -> None:
    channel.sendall(json.dumps(message).encode())


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
