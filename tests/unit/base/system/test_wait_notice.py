"""A wait that lasts says what it is for."""

from __future__ import annotations

import logging
import threading

import pytest

from surreal.base.system.logs import WaitNotice, Waits

logger = logging.getLogger(__name__)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_short_wait_says_nothing_and_a_long_one_speaks_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notice = WaitNotice(logger, clock=clock)
    for _ in range(19):
        clock.now += 0.1
        notice.tell("waiting for %s", "tea")
    assert caplog.messages == []
    for _ in range(50):
        clock.now += 0.1
        notice.tell("waiting for %s", "tea")
    assert caplog.messages == ["waiting for tea"]


def test_each_wait_has_its_own_patience_and_the_log_is_not_filled(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notice = WaitNotice(logger, clock=clock)
    for _ in range(20):  # waits of 1.5 s, one after the other
        notice.begin()
        clock.now += 1.5
        notice.tell("waiting")
    assert caplog.messages == []
    for _ in range(20):  # waits of 2.5 s
        notice.begin()
        clock.now += 2.5
        notice.tell("waiting")
    assert caplog.messages == ["waiting"]
    clock.now += 600
    notice.begin()
    clock.now += 2.5
    notice.tell("waiting")
    assert len(caplog.messages) == 2


def test_what_is_waited_for_shows_while_it_lasts_and_no_longer() -> None:
    clock = Clock()
    waits = Waits(clock=clock)
    notice = WaitNotice(logger, clock=clock, waits=waits)
    notice.tell("waiting for %s", "tea")
    assert waits.texts() == []
    clock.now += 2.5
    notice.tell("waiting for %s", "tea")
    assert waits.texts() == ["waiting for tea"]
    assert waits.is_waiting(threading.get_ident())
    notice.end()
    assert waits.texts() == []
    assert not waits.is_waiting(threading.get_ident())
    clock.now += 100.0
    notice.tell("waiting for more")  # another wait begins here
    assert waits.texts() == []


def test_a_wait_that_was_left_by_an_exception_is_forgotten() -> None:
    clock = Clock()
    waits = Waits(clock=clock)
    waits.note("one", "waiting for Redis")
    clock.now += 3.0
    waits.note("one", "waiting for Redis")
    assert waits.texts() == ["waiting for Redis"]
    clock.now += 60.0
    assert waits.texts() == []
