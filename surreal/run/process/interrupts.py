"""Ends of a process from outside: signals, the end of its launcher, and an output that was closed.

The first Ctrl-C asks for a drain, the second SIGINT or SIGTERM hurries it, the third ends it at once. Role processes
only drain: the process that started them limits the time. The launcher counts.

A role process ends with the launcher that started it, however that ends. The launcher names itself in an environment
variable. When it is gone, its child gets SIGTERM and drains, as far as Redis is still there. A child that takes too
long ends itself.
"""

from __future__ import annotations

import _thread
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from surreal.base.system.process import die_with_parent
from surreal.run.process.ending import Ending, ExitCode

#: Signals that ask a process to end.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KILLING_COUNT = 3
#: Asks for a checkpoint and ends nothing; a cluster may send it before it takes a machine back.
CHECKPOINT_SIGNAL = signal.SIGUSR1


def set_at_signals(stop: threading.Event, *, is_abortable: bool = False) -> Sequence[signal.Signals]:
    """Set an event at SIGINT, SIGTERM and SIGHUP; returns the signals so far, a list that grows.

    If it is abortable, the third SIGINT, and any after it, raises KeyboardInterrupt.
    """
    come: list[signal.Signals] = []

    def note(number: int, _: FrameType | None) -> None:
        come.append(signal.Signals(number))
        if is_abortable and come.count(signal.SIGINT) >= _KILLING_COUNT:
            raise KeyboardInterrupt
        try:
            # The interrupted code may be a wait for this event that holds the lock which `set` takes.
            _thread.start_new_thread(stop.set, ())
        except RuntimeError:  # no more threads
            stop.set()

    for number in _SIGNALS:
        signal.signal(number, note)
    _keep_ended_children()
    return come


def stop_at_signals() -> threading.Event:
    """Return a new event, which is set at these signals."""
    stop = threading.Event()
    set_at_signals(stop)
    return stop


def _keep_ended_children() -> None:
    """Restore SIGCHLD, which may be inherited as ignored, so that this process learns how its children end."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def signal_name(number: int) -> str:
    """Return SIGKILL for 9, and `signal 99` for a number that Python has no name for."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def hold_checkpoint_signal() -> None:
    """Block the checkpoint signal, which would end a starting process, until a `CheckpointRequest` listens."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {CHECKPOINT_SIGNAL})


def release_checkpoint_signal() -> set[int]:
    """Unblock the checkpoint signal after its handler is installed, and return the blocked signals."""
    return signal.pthread_sigmask(signal.SIG_UNBLOCK, {CHECKPOINT_SIGNAL})


@contextmanager
def paused_by_signals(pause: Callable[[], object], resume: Callable[[], object]) -> Iterator[None]:
    """Inside, call a function at SIGTSTP, which stops other processes, and another at SIGCONT."""
    numbers = {signal.SIGTSTP: pause, signal.SIGCONT: resume}
    before = {number: signal.signal(number, lambda *_, call=call: call()) for number, call in numbers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def checkpoint_signal_held() -> Iterator[None]:
    """Start processes inside with the checkpoint signal blocked; they must release it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {CHECKPOINT_SIGNAL})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class CheckpointRequest:
    """Records whether a checkpoint was requested of this process."""

    def __init__(self) -> None:
        self._has_come = False

    def listen(self) -> None:
        """Record the signal from now on, which would otherwise end the process; called on the main thread."""
        signal.signal(CHECKPOINT_SIGNAL, self.note)
        release_checkpoint_signal()

    def take(self) -> bool:
        has_come, self._has_come = self._has_come, False
        return has_come

    def note(self, number: int, _: FrameType | None) -> None:
        self._has_come = True


class Interrupts:
    """Requests to a launcher: by signals, or by an output that was closed."""

    def __init__(self) -> None:
        self._count = 0
        self.checkpoint_request = CheckpointRequest()
        self.ending: Ending | None = None  #: why the run must end, from the first request; None without one

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Handle the signals inside, and restore them afterwards; the third SIGINT raises KeyboardInterrupt.

        If the checkpoint signal was blocked before, it is ignored afterwards: the process ends, and threads that were
        started inside do not block it.
        """
        before = {number: signal.signal(number, self._note) for number in (*_SIGNALS, CHECKPOINT_SIGNAL)}
        blocked = release_checkpoint_signal()
        _keep_ended_children()
        try:
            yield self
        finally:
            if CHECKPOINT_SIGNAL in blocked:
                before[CHECKPOINT_SIGNAL] = signal.SIG_IGN
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            for number, handler in before.items():
                signal.signal(number, handler)

    def end(self, reason: str, exit_code: ExitCode = ExitCode.HANGUP) -> None:
        """Ask for a drain; the first reason stays."""
        if self.ending is None:
            self.ending = Ending(reason, exit_code)

    @property
    def is_draining(self) -> bool:
        return self.ending is not None

    @property
    def is_hurried(self) -> bool:
        """Whether the drain must be short; a checkpoint is still written."""
        return self._count >= 2

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == CHECKPOINT_SIGNAL:
            self.checkpoint_request.note(number, None)
            return
        self.end(f"interrupted by {signal.Signals(number).name}", ExitCode(128 + number))
        if number == signal.SIGHUP:  # a closed terminal may send several
            return
        self._count += 1
        if self._count == _KILLING_COUNT:
            raise KeyboardInterrupt


PARENT_VARIABLE = "SURREAL_PARENT_PID"

#: Processes of a run share the cores: more threads in each would only wait for each other. If a process has several
#: anyway, waiting threads must not spin: two spinning threads made updates five times slower next to another process.
_SHARED_CORES = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
_GRACE_S = 15.0
_POLL_INTERVAL_S = 0.5


def child_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a child that must end with this process."""
    return {**_SHARED_CORES, **os.environ, PARENT_VARIABLE: str(os.getpid()), **added}


def follow_parent() -> None:
    """End with the launcher, if one started this process; called after signal handlers are installed."""
    # Removed, because this process's children have another parent.
    text = os.environ.pop(PARENT_VARIABLE, "")
    if not text.isdigit():
        return
    parent = int(text)
    die_with_parent(signal.SIGTERM, parent_pid=parent)
    threading.Thread(target=_end_for_good, args=(parent,), name="lifeline", daemon=True).start()


def _end_for_good(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_INTERVAL_S)
    time.sleep(_GRACE_S)
    os._exit(1)


_CLOSED = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})


class Output:
    """A stream that never raises: `on_failure` gets the first reason, and later output is dropped; thread-safe."""

    def __init__(self, stream: TextIO, on_failure: Callable[[str], object]) -> None:
        self._stream = stream
        self._on_failure = on_failure
        self.is_closed = False

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    def write(self, text: str) -> int:
        if not self.is_closed:
            try:
                return self._write(text)
            except (OSError, ValueError) as error:
                self._fail(error)
        return len(text)

    def flush(self) -> None:
        if not self.is_closed:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._fail(error)

    def isatty(self) -> bool:
        return not self.is_closed and self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:  # the terminal lacks a character
            self._stream.write(text.encode(error.encoding, "replace").decode(error.encoding))
            return len(text)

    def _fail(self, error: Exception) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        _discard(self._stream)
        is_gone = not isinstance(error, OSError) or error.errno in _CLOSED
        self._on_failure("its output was closed" if is_gone else f"its output cannot be written: {error}")


def flush_output() -> None:
    """Flush stdout and stderr for the last time; drop what cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _discard(stream)


def _discard(stream: TextIO) -> None:
    """Redirect a stream to nowhere, so that its buffer does not fail again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
