"""Interrupts."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from surreal.run.process.ending import Ending, ExitCode

#: What asks a process to end, all in the same way.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KILLING_COUNT = 3
#: What asks for a checkpoint, and ends nothing: whoever lends a machine may send it before taking it back.
CHECKPOINT_SIGNAL = signal.SIGUSR1


def set_at_signals(stop: threading.Event, *, is_abortable: bool = False) -> Sequence[signal.Signals]:
    """Set an event at SIGINT, SIGTERM and SIGHUP.

    Args:
        stop: the event.
        is_abortable: whether the third SIGINT, and any after it, raises KeyboardInterrupt.

    Returns:
        The signals that have come, which grows with each.
    """
    come: list[signal.Signals] = []

    def note(number: int, _: FrameType | None) -> None:
        come.append(signal.Signals(number))
        if is_abortable and come.count(signal.SIGINT) >= _KILLING_COUNT:
            raise KeyboardInterrupt
        try:
            # What was interrupted may be a wait for this very event, and hold the lock that `set` takes.
            _thread.start_new_thread(stop.set, ())
        except RuntimeError:  # no more threads
            stop.set()

    for number in _SIGNALS:
        signal.signal(number, note)
    _keep_ended_children()
    return come


def _keep_ended_children() -> None:
    """Have this process learn how its children end, even if its parent ignored SIGCHLD, which is inherited."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def hold_checkpoint_signal() -> None:
    """Block the signal that asks for a checkpoint, which would end a process that is starting.

    What comes meanwhile is delivered when `CheckpointRequest` or `Interrupts` begin to listen for it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {CHECKPOINT_SIGNAL})


def release_checkpoint_signal() -> set[int]:
    """Take the signal that asks for a checkpoint again, when its handler is in place; returns what was blocked."""
    return signal.pthread_sigmask(signal.SIG_UNBLOCK, {CHECKPOINT_SIGNAL})


@contextmanager
def checkpoint_signal_held() -> Iterator[None]:
    """Have processes that are started inside begin with the signal blocked; they must release it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {CHECKPOINT_SIGNAL})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class CheckpointRequest:
    """Whether this process was asked for a checkpoint."""

    def __init__(self) -> None:
        self._has_come = False

    def listen(self) -> None:
        """From now on, note the signal, which would otherwise end the process; on its main thread."""
        signal.signal(CHECKPOINT_SIGNAL, self.note)
        release_checkpoint_signal()

    def take(self) -> bool:
        """Whether it was asked for since the last call."""
        has_come, self._has_come = self._has_come, False
        return has_come

    def note(self, number: int, _: FrameType | None) -> None:
        """It is asked for: a signal's handler."""
        self._has_come = True


class Interrupts:
    """What a launcher was told from outside: by signals, or by an output that nobody reads any more.

    Attributes:
        ending: why the run is to end, by the first of them; None while nothing was said.
        checkpoint_request: whether a checkpoint was asked for.
    """

    def __init__(self) -> None:
        self._count = 0
        self.checkpoint_request = CheckpointRequest()
        self.ending: Ending | None = None

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Handle the signals inside, and give them back afterwards; the third SIGINT raises KeyboardInterrupt.

        The signal for a checkpoint is ignored afterwards if it was held before: the process ends, and threads that
        were started inside do not block it.
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
        """Whether the drain is to be cut short; a checkpoint is still written."""
        return self._count >= 2

    def _note(self, number: int, _: FrameType | None) -> None:
        if number == CHECKPOINT_SIGNAL:
            self.checkpoint_request.note(number, None)
            return
        self.end(f"interrupted by {signal.Signals(number).name}", ExitCode(128 + number))
        if number == signal.SIGHUP:  # of which a closed terminal may send several
            return
        self._count += 1
        if self._count == _KILLING_COUNT:
            raise KeyboardInterrupt
