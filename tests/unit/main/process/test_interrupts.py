"""Signals: what they set, whatever they interrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from surreal.main.process.interrupts import set_at_signals

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Give the handlers back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_may_come_at_any_point_of_a_wait_for_what_it_sets(number: signal.Signals) -> None:
    stop = threading.Event()
    set_at_signals(stop)
    with stop._cond:  # type: ignore[attr-defined]  # which `wait` holds when it begins and when it ends
        os.kill(os.getpid(), number)
        assert not stop.is_set()
    assert stop.wait(DEADLINE_S)


def test_only_a_second_interrupt_aborts() -> None:
    stop = threading.Event()
    set_at_signals(stop, is_abortable=True)
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.wait(DEADLINE_S)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_more_signals_change_nothing_where_there_is_no_aborting() -> None:
    stop = threading.Event()
    set_at_signals(stop)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.wait(DEADLINE_S)
