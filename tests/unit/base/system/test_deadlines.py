"""Deadlines at a fixed rate, with a clock of the test."""

from __future__ import annotations

import numpy as np
import pytest

from surreal.base.system.deadlines import Deadlines


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_late_turns_do_not_move_later_deadlines() -> None:
    clock = Clock()
    deadlines = Deadlines(50.0, clock=clock)
    for lateness_s in np.random.default_rng(0).uniform(0.0, 0.019, 10_000):
        clock.now += deadlines.left_s() + lateness_s
        deadlines.advance()
    clock.now += deadlines.left_s()
    assert clock.now == pytest.approx(100.0 + 10_001 * 0.02, abs=1e-9)
    assert (deadlines.passed, deadlines.missed) == (10_000, 0)


def test_deadlines_that_pass_are_missed_and_not_caught_up() -> None:
    clock = Clock()
    deadlines = Deadlines(10.0, clock=clock)
    clock.now += deadlines.left_s() + 0.35
    deadlines.advance()
    assert (deadlines.passed, deadlines.missed) == (4, 3)
    assert deadlines.left_s() == pytest.approx(0.05)


def test_a_restart_misses_nothing() -> None:
    clock = Clock()
    deadlines = Deadlines(10.0, clock=clock)
    clock.now += 60.0
    deadlines.restart()
    assert deadlines.left_s() == pytest.approx(0.1)
    assert deadlines.missed == 0


def test_metrics_have_percentiles_of_the_last_latencies_in_ms() -> None:
    deadlines = Deadlines(10.0, window=100, clock=Clock())
    assert deadlines.metrics("agent") == {"agent/deadlines_total": 0.0, "agent/missed_deadlines_total": 0.0}
    for latency_ms in (1e6, *range(101)):
        deadlines.add_latency(latency_ms / 1e3)
    deadlines.miss()
    assert deadlines.metrics("agent") == {
        "agent/deadlines_total": 0.0,
        "agent/missed_deadlines_total": 1.0,
        "agent/latency_p50_ms": pytest.approx(50.5),
        "agent/latency_p99_ms": pytest.approx(99.01),
    }


@pytest.mark.parametrize("rate_hz", [0.0, -1.0, float("nan")])
def test_a_rate_is_positive(rate_hz: float) -> None:
    with pytest.raises(ValueError, match="rate_hz"):
        Deadlines(rate_hz)
