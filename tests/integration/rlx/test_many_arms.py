"""Several clients that keep time and one learner: `benchmarks.arms`, with few arms. How fast they are is not tested."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.arm_figures import Round, acknowledged_steps, ages_ms
from benchmarks.arms import measure
from benchmarks.baselines.rlx_arms import Act


def test_arms_are_killed_and_flood_and_leave_while_nothing_acknowledged_is_lost(redis_server: Any) -> None:
    cases = ("flood", "silence", "killed", "leaving")
    *lines, totals = measure(redis_server.address, arms=3, rate_hz=20.0, rounds=1, seconds=1.5, cases=cases)
    assert [line["name"] for line in lines] == [f"arms, {case}" for case in cases]
    assert all(line["slowest_hz"] > 0 for line in lines)  # each of the others acted in each case
    by_case = dict(zip(cases, lines, strict=True))
    assert by_case["killed"]["last_steps"] > 1  # it came back
    assert totals["steps"] > 3 * len(cases)
    assert (totals["lost"], totals["is_sent"]) == (0, True)
    assert totals["newest_acted"] > 1  # parameters that were broadcast later reached the arms


def act(step: int, answered_s: float, version: int, *, has_outcome: bool = True) -> Act:
    return Act(0, step, has_outcome, answered_s - 0.01, answered_s, version)


def test_ages_are_from_a_broadcast_to_the_last_action_by_older_parameters_and_the_first_by_new_ones() -> None:
    acts = [act(number, 0.05 * number, version=1 if number < 23 else 2) for number in range(60)]
    outdated, new = ages_ms(acts, [(2, 1.0)])
    assert outdated == pytest.approx([100.0])
    assert new == pytest.approx([150.0])
    assert ages_ms(acts, [(2, 1.16)])[0] == [0.0]  # at the broadcast, they had come
    assert ages_ms(acts, [(2, 2.9)]) == ([], [])  # too late to see


def test_a_step_is_acknowledged_by_the_request_after_it() -> None:
    acts = [act(5, 0.1, 1, has_outcome=False), act(6, 0.2, 1)]
    assert acknowledged_steps([Round("calm", 1.0, acts, [])]) == {(0, 5)}
