"""What clients may have written into a run's files."""

from __future__ import annotations

from surreal.rlx.server.metrics import (
    MAX_NAMES,
    SERVER_BURST,
    SERVER_RATE,
    SESSION_BURST,
    SESSION_RATE,
    Budget,
    MetricBudget,
    MetricRecord,
)


def record(name: str = "client/n", method: str = "scalar") -> MetricRecord:
    return MetricRecord(method, name, 1.0, None)


def session() -> Budget:
    return Budget(SESSION_RATE, SESSION_BURST)


def test_a_session_has_a_burst_and_then_its_rate() -> None:
    budget, one, other = MetricBudget(), session(), session()
    assert sum(budget.admits(record(), one, 100.0) for _ in range(10_000)) == SESSION_BURST
    assert budget.dropped == 10_000 - SESSION_BURST
    assert budget.admits(record(), other, 100.0)  # what one has used up is not the other's loss
    assert sum(budget.admits(record(), one, 100.0 + tick / 100) for tick in range(1, 1001)) == 10 * SESSION_RATE


def test_all_sessions_together_have_a_bound() -> None:
    budget = MetricBudget()
    assert sum(budget.admits(record(), session(), 5.0) for _ in range(10_000)) == SERVER_BURST
    assert sum(budget.admits(record(), session(), 7.0) for _ in range(10_000)) == 2 * SERVER_RATE


def test_a_histogram_counts_as_ten() -> None:
    budget, one = MetricBudget(), session()
    assert sum(budget.admits(record(method="histogram"), one, 1.0) for _ in range(1000)) == SESSION_BURST / 10


def test_names_are_bounded_and_those_that_are_known_stay() -> None:
    budget = MetricBudget()
    admitted = [budget.admits(record(f"client/{number}"), session(), 1.0) for number in range(MAX_NAMES + 5)]
    assert admitted == [True] * MAX_NAMES + [False] * 5
    assert budget.admits(record("client/0"), session(), 1.0)
