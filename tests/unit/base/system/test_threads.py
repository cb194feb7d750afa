"""Supervised threads: they stop together, and a failure reaches the owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from surreal.base.errors import StoppedError, ThreadFailedError
from surreal.base.system.threads import HandoverQueue, Supervisor

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


DEADLINE_S = 60.0

#: Waits in its main thread, and tells that a signal came and that the wait ended.
WAITER = """
import os, signal
from surreal.base.system.threads import HandoverQueue

def say(text):  # not by print, which a signal may interrupt, and which its handler must not call then
    os.write(1, f"{text}\\n".encode())

signal.signal(signal.SIGTERM, lambda *_: say("signal"))
say("begins")
say(HandoverQueue().take(0.3))
"""


def test_what_is_there_comes_at_once_and_in_order() -> None:
    queue: HandoverQueue[int] = HandoverQueue()
    for number in range(3):
        queue.put(number)
    assert len(queue) == 3
    assert [queue.take(0.0), queue.take(DEADLINE_S), queue.take(0.0)] == [0, 1, 2]
    assert queue.take(0.0) is None
    assert queue.take(0.01) is None
    assert len(queue) == 0


def test_nothing_is_lost_and_nobody_sleeps_on_between_threads() -> None:
    queue: HandoverQueue[tuple[int, int]] = HandoverQueue()
    number_of_items, before = 20_000, sys.getswitchinterval()

    def make(maker: int) -> None:
        for number in range(number_of_items):
            queue.put((maker, number))
            if number % 7 == 0:
                time.sleep(0)

    makers = [threading.Thread(target=make, args=(maker,)) for maker in range(2)]
    sys.setswitchinterval(1e-6)
    try:
        for maker in makers:
            maker.start()
        taken = [queue.take(DEADLINE_S) for _ in range(2 * number_of_items)]
    finally:
        sys.setswitchinterval(before)
        for maker in makers:
            maker.join(DEADLINE_S)
    for maker in range(2):
        assert [item[1] for item in taken if item is not None and item[0] == maker] == list(range(number_of_items))


def test_a_wait_is_woken_by_what_comes() -> None:
    queue: HandoverQueue[int] = HandoverQueue()
    found: list[int | None] = []
    taker = threading.Thread(target=lambda: found.append(queue.take(10 * DEADLINE_S)))
    taker.start()
    while not queue._is_awaited:
        time.sleep(0.001)
    queue.put(7)
    taker.join(DEADLINE_S)
    assert found == [7]


def test_a_signal_that_is_handled_after_the_timeout_does_not_make_it_endless() -> None:
    waiter = subprocess.Popen([sys.executable, "-c", WAITER], stdout=subprocess.PIPE, text=True)
    try:
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "begins\n"
        os.kill(waiter.pid, signal.SIGSTOP)
        os.kill(waiter.pid, signal.SIGTERM)
        time.sleep(0.5)  # it is suspended for longer than it wants to wait
        os.kill(waiter.pid, signal.SIGCONT)
        output, _ = waiter.communicate(timeout=DEADLINE_S)
    finally:
        waiter.kill()
        waiter.wait()
    assert sorted(output.split()) == ["None", "signal"]
