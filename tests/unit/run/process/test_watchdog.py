"""A loop that does not turn is noticed, named, and acted on once."""

from __future__ import annotations

import logging
import threading

import pytest

from surreal.base.system.health import Pulse
from surreal.base.system.logs import Waits
from surreal.run.process.liveness import Watchdog


class Watched:
    """A watchdog with a clock of its own, over one pulse of this thread."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pulse = Pulse("the main loop")
        self.waits = Waits(clock=lambda: self.now)
        self.shown: list[str] = []
        self.acts: list[str] = []
        self.watchdog = Watchdog(
            10.0,
            show=self.shown.append,
            act=self.acts.append,
            clock=lambda: self.now,
            waits=self.waits,
            find=lambda: [self.pulse],
        )

    def pass_s(self, seconds: int, *, turns: bool = False, waits: bool = False) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.pulse.has_turned = turns
            if waits:
                self.waits.note("wait", "waiting for credit")
            self.watchdog.look()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_loop_that_turns_is_left_alone(watched: Watched) -> None:
    watched.pass_s(100, turns=True)
    assert set(watched.shown) == {""}
    assert watched.acts == []


def test_a_hang_is_warned_of_with_its_call_and_acted_on_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watched.pass_s(1, turns=True)
    watched.pass_s(60)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("the main loop hangs in ")
    assert warning.endswith("for 10 s now")
    assert "File " in caplog.text  # the whole stack
    assert watched.acts == [warning]
    assert watched.shown[-1].startswith("the main loop hangs in ")


def test_a_loop_that_goes_on_hangs_no_longer(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.pass_s(1, turns=True)
    watched.pass_s(20)
    watched.pass_s(1, turns=True)
    assert watched.shown[-1] == ""
    assert "continues after 20 s" in caplog.text
    watched.pass_s(20)
    assert len(watched.acts) == 2


def test_waiting_for_something_with_a_name_is_no_hang(watched: Watched) -> None:
    watched.pass_s(1, turns=True)
    watched.pass_s(300, waits=True)
    assert watched.acts == []


def test_what_hangs_before_its_first_turn_is_only_warned_of(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.pass_s(60)
    assert "hangs in" in caplog.text
    assert watched.acts == []


def test_a_process_that_was_stopped_for_an_hour_does_not_hang(watched: Watched) -> None:
    watched.pass_s(1, turns=True)
    watched.now += 3600.0
    watched.watchdog.look()
    assert watched.acts == []


def test_its_thread_finds_a_hang_of_another_one() -> None:
    release, shown, hung = threading.Event(), list[str](), threading.Event()

    def loop() -> None:
        pulse = Pulse("thread x")
        pulse.has_turned = True
        release.wait(30.0)
        pulse.close()

    thread = threading.Thread(target=loop)

    def show(text: str) -> None:
        if "thread x hangs in loop (test_watchdog.py line " in text:
            shown.append(text)
            hung.set()

    watchdog = Watchdog(0.2, show=show)
    thread.start()
    watchdog.start()
    try:
        assert hung.wait(20.0)
    finally:
        release.set()
        thread.join()
        watchdog.stop()
