"""Where a loop hangs."""

from __future__ import annotations

import threading
import time

from surreal.base.liveness.pulse import Pulse, innermost_call, pulses, stack_of
from surreal.base.system.threads import Supervisor


def test_the_call_that_a_thread_is_in_is_named_with_file_and_line() -> None:
    release, found = threading.Event(), list[int]()

    def slow_step() -> None:
        found.append(threading.get_ident())
        release.wait(30.0)

    thread = threading.Thread(target=slow_step)
    thread.start()
    deadline = time.monotonic() + 20.0
    while not found or "wait" not in {frame.name for frame in stack_of(found[0])}:
        assert time.monotonic() < deadline
    call = innermost_call(stack_of(found[0]))
    release.set()
    thread.join()
    # Not `wait (threading.py line ...)`: that is where every hang ends.
    assert call.startswith("slow_step (test_pulse.py line ")
    assert stack_of(found[0]) == []


def test_a_supervised_thread_has_a_pulse_while_it_runs() -> None:
    supervisor, has_run = Supervisor("here"), threading.Event()

    def step() -> None:
        has_run.set()
        supervisor.stop_event.wait(1.0)

    supervisor.spawn("loop", step)
    assert has_run.wait(20.0)
    (found,) = [pulse for pulse in pulses() if pulse.name == "thread here/loop"]
    assert found.has_turned
    supervisor.stop()
    assert supervisor.join(20.0)
    assert found not in pulses()


def test_a_pulse_that_was_closed_is_not_watched() -> None:
    pulse = Pulse("main loop")
    assert pulse in pulses()
    pulse.close()
    assert pulse not in pulses()
