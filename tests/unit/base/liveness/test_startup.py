from __future__ import annotations

import pytest

from surreal.base.liveness.startup import Startup


def test_a_start_is_split_into_leases_restoring_and_the_first_step() -> None:
    now_s = lease_s = 0.0
    startup = Startup(clock=lambda: now_s)
    began_s = startup._began_s  # as long ago as this process began
    startup.watch_lease(lambda: lease_s)
    startup.mark_first_step()
    assert startup.metrics() == {}  # nothing is restored yet
    now_s, lease_s = 5.0, 2.0
    startup.mark_restored()
    now_s, lease_s = 9.0, 5.0
    startup.mark_first_step()
    expected = {"start_lease_s": 5.0, "start_restore_s": 3.0 - began_s, "start_first_step_s": 1.0}
    assert startup.metrics() == pytest.approx(expected)
    now_s = 100.0
    startup.mark_restored()
    startup.mark_first_step()
    assert startup.metrics() == {}  # they were told
