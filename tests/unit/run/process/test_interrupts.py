"""Signals: what they set, whatever they interrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from surreal.run.launch.starting import ForkedProcess
from surreal.run.process.interrupts import (
    CHECKPOINT_SIGNAL,
    CheckpointRequest,
    Interrupts,
    checkpoint_signal_held,
    paused_by_signals,
    set_at_signals,
)

DEADLINE_S = 60.0
NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ALL = (*NUMBERS, CHECKPOINT_SIGNAL, signal.SIGCHLD)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Give the handlers back afterwards."""
    before = {number: signal.getsignal(number) for number in ALL}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_may_come_at_any_point_of_a_wait_for_what_it_sets(number: signal.Signals) -> None:
    stop = threading.Event()
    set_at_signals(stop)
    with stop._cond:  # type: ignore[attr-defined]  # which `wait` holds when it begins and when it ends
        os.kill(os.getpid(), number)
        assert not stop.is_set()
    assert stop.wait(DEADLINE_S)


def test_only_a_third_interrupt_aborts() -> None:
    stop = threading.Event()
    set_at_signals(stop, is_abortable=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(os.getpid(), number)
    assert stop.wait(DEADLINE_S)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_more_signals_change_nothing_where_there_is_no_aborting() -> None:
    stop = threading.Event()
    set_at_signals(stop)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("numbers", "reason", "code"),
    [
        ([signal.SIGINT], "interrupted by SIGINT", 130),
        ([signal.SIGTERM, signal.SIGINT], "interrupted by SIGTERM", 143),
        ([signal.SIGHUP, signal.SIGHUP, signal.SIGHUP, signal.SIGINT], "interrupted by SIGHUP", 129),
    ],
)
def test_the_first_reason_stays_and_hangups_do_not_hurry(numbers: list[signal.Signals], reason: str, code: int) -> None:
    with Interrupts().installed() as interrupts:
        assert not interrupts.is_draining
        for number in numbers:
            os.kill(os.getpid(), number)
        interrupts.end("its output was closed")
        assert interrupts.ending == (reason, code)
        assert interrupts.is_hurried == (numbers.count(signal.SIGHUP) == 0 and len(numbers) > 1)


def test_a_launcher_counts_to_three_and_no_further() -> None:
    with Interrupts().installed() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert (interrupts.is_draining, interrupts.is_hurried) == (True, False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.is_hurried
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # while it cleans up


def test_a_checkpoint_is_asked_for_without_an_end() -> None:
    request = CheckpointRequest()
    request.listen()
    assert not request.take()
    os.kill(os.getpid(), CHECKPOINT_SIGNAL)
    assert request.take()
    assert not request.take()


def test_a_checkpoint_that_is_asked_for_before_anything_listens_is_noted_then() -> None:
    with checkpoint_signal_held():
        signal.raise_signal(CHECKPOINT_SIGNAL)  # in this thread: the others do not block it
        request = CheckpointRequest()
        request.listen()
        assert request.take()


def test_a_launcher_that_ends_survives_the_wish_for_a_checkpoint() -> None:
    end = threading.Event()
    with checkpoint_signal_held():  # as the command does from its start
        with Interrupts().installed():
            thread = threading.Thread(target=end.wait)
            thread.start()
        os.kill(os.getpid(), CHECKPOINT_SIGNAL)  # to whichever thread does not block it
        end.set()
        thread.join()


def test_a_child_that_ends_is_noticed_though_the_parent_ignored_sigchld() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with Interrupts().installed():
        child = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "exit 3")
        forked = ForkedProcess(child)
        assert forked.wait() == forked.poll() == 3


def test_a_launcher_notes_the_wish_for_a_checkpoint_and_does_not_end() -> None:
    interrupts = Interrupts()
    with interrupts.installed():
        os.kill(os.getpid(), CHECKPOINT_SIGNAL)
    assert interrupts.checkpoint_request.take()
    assert interrupts.ending is None


def test_sigtstp_pauses_and_sigcont_resumes() -> None:
    calls: list[str] = []
    numbers = (signal.SIGTSTP, signal.SIGCONT)
    before = [signal.getsignal(number) for number in numbers]
    with paused_by_signals(lambda: calls.append("pause"), lambda: calls.append("resume")):
        for number in (*numbers, signal.SIGTSTP):
            signal.raise_signal(number)
    assert calls == ["pause", "resume", "pause"]
    assert [signal.getsignal(number) for number in numbers] == before
