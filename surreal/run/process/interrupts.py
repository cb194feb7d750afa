"""Signals: the first Ctrl-C asks for a drain, the second SIGINT or SIGTERM hurries it, the third ends it at once.

Role processes only drain: the process that started them limits the time. The launcher counts.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from surreal.run.process.ending import Ending, ExitCode

#: Signals that ask a process to end.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KILLING_COUNT = 3
#: Asks for a checkpoint and ends nothing; a cluster may send it before it takes a machine back.
CHECKPOINT_SIGNAL = signal.SIGUSR1


def set_at_signals(stop: threading.Event, *, is_abortable: bool = False) -> Sequence[signal.Signals]:
    """Set an event at SIGINT, SIGTERM and SIGHUP; if it is abortable, the third SIGINT raises KeyboardInterrupt.

    Returns:
        The signals so far; the list grows.
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


def _keep_ended_children() -> None:
    """Restore SIGCHLD, which may be inherited as ignored, so that this process learns how its children end."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def hold_checkpoint_signal() -> None:
    """Block the checkpoint signal, which would end a starting process, until a `CheckpointRequest` listens."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {CHECKPOINT_SIGNAL})


def release_checkpoint_signal() -> set[int]:
    """Unblock the checkpoint signal after its handler is installed; returns what was blocked."""
    return signal.pthread_sigmask(signal.SIG_UNBLOCK, {CHECKPOINT_SIGNAL})


@contextmanager
def checkpoint_signal_held() -> Iterator[None]:
    """Start processes inside with the checkpoint signal blocked; they must release it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {CHECKPOINT_SIGNAL})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class CheckpointRequest:
    """Notes whether this process was asked for a checkpoint."""

    def __init__(self) -> None:
        self._has_come = False

    def listen(self) -> None:
        """Record the signal from now on, which would otherwise end the process; called on the main thread."""
        signal.signal(CHECKPOINT_SIGNAL, self.note)
        release_checkpoint_signal()

    def take(self) -> bool:
        """Whether a checkpoint was asked for since the last call."""
        has_come, self._has_come = self._has_come, False
        return has_come

    def note(self, number: int, _: FrameType | None) -> None:
        """Handle the signal."""
        self._has_come = True


class Interrupts:
    """Requests to a launcher: by signals, or by an output that was closed.

    Attributes:
        ending: why the run must end, from the first request; None without one.
        checkpoint_request: whether a checkpoint was asked for.
    """

    def __init__(self) -> None:
        self._count = 0
        self.checkpoint_request = CheckpointRequest()
        self.ending: Ending | None = None

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
