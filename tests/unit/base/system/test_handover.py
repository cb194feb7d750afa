"""HandoverQueue: order, waits that end, and signals that interrupt them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from surreal.base.system.handover import HandoverQueue

DEADLINE_S = 60.0

#: Waits in its main thread, and tells that a signal came and that the wait ended.
WAITER = """
import os, signal
from surreal.base.system.handover import HandoverQueue

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
