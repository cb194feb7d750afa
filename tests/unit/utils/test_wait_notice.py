"""A wait that lasts says what it is for."""

from __future__ import annotations

import logging

import pytest

from surreal.utils.wait_notice import WaitNotice

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
