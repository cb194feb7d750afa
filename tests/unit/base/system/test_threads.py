"""Supervised threads: they stop together, and a failure reaches the owner."""

from __future__ import annotations

import threading
import time

import pytest

from surreal.base.errors import StoppedError, ThreadFailedError
from surreal.base.system.threads import Supervisor

DEADLINE_S = 10.0


def test_threads_loop_until_they_are_stopped() -> None:
    supervisor = Supervisor("test")
    calls = [0, 0]
    reached = threading.Event()

    def step(index: int) -> None:
        calls[index] += 1
        if min(calls) >= 3:
            reached.set()
        time.sleep(0.001)

    assert not supervisor.is_running
    supervisor.spawn("a", lambda: step(0))
    supervisor.spawn("b", lambda: step(1))
    assert reached.wait(DEADLINE_S)
    assert supervisor.is_running
    names = {thread.name for thread in threading.enumerate()}
    assert {"test/a", "test/b"} <= names
    supervisor.stop()
    assert supervisor.join(DEADLINE_S)
    assert not supervisor.is_running
    supervisor.check()


def test_a_failure_stops_all_threads_and_is_raised_with_its_traceback() -> None:
    supervisor = Supervisor("test")

    def break_down() -> None:
        raise KeyError("the original")

    supervisor.spawn("healthy", lambda: time.sleep(0.001))
    supervisor.spawn("broken", break_down)
    assert supervisor.stop_event.wait(DEADLINE_S)
    assert supervisor.join(DEADLINE_S)
    for _ in range(2):  # every check raises, not only the first
        with pytest.raises(ThreadFailedError, match="test/broken") as caught:
            supervisor.check()
        cause = caught.value.__cause__
        assert isinstance(cause, KeyError)
        assert cause.__traceback__ is not None
        assert cause.__traceback__.tb_next is not None  # down to `break_down`
        assert cause.__traceback__.tb_next.tb_frame.f_code.co_name == "break_down"


def test_the_first_of_several_failures_is_kept() -> None:
    supervisor = Supervisor("test")

    def fail_first() -> None:
        raise ValueError("first")

    def fail_later() -> None:
        supervisor.stop_event.wait(DEADLINE_S)
        raise ValueError("second")

    supervisor.spawn("later", fail_later)
    supervisor.spawn("first", fail_first)
    assert supervisor.join(DEADLINE_S)
    with pytest.raises(ThreadFailedError, match="first"):
        supervisor.check()


def test_a_thread_that_was_stopped_while_waiting_has_not_failed() -> None:
    supervisor = Supervisor("test")

    def wait() -> None:
        raise StoppedError("asked to stop")

    supervisor.spawn("waiting", wait)
    assert supervisor.join(DEADLINE_S)
    assert supervisor.stop_event.is_set()
    supervisor.check()


def test_even_a_system_exit_in_a_thread_reaches_the_owner() -> None:
    supervisor = Supervisor("test")

    def leave() -> None:
        raise SystemExit(3)

    supervisor.spawn("leaving", leave)
    assert supervisor.join(DEADLINE_S)
    with pytest.raises(ThreadFailedError):
        supervisor.check()


def test_join_tells_that_a_thread_still_runs(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor("test")
    begun, release = threading.Event(), threading.Event()
    supervisor.spawn("slow", lambda: (begun.set(), release.wait(DEADLINE_S)))
    assert begun.wait(DEADLINE_S)
    supervisor.stop()
    assert not supervisor.join(0.01)
    assert "test/slow" in caplog.text
    release.set()
    assert supervisor.join(DEADLINE_S)
