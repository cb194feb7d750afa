"""From rounds of evaluations to scores, beside naive loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.plugins.sweep.proposing import curve, over_seeds, reports, run_score


def rounds(*pairs: tuple[int, float | None]) -> list[dict[str, Any]]:
    return [{"kind": "round", "global_step": step, "mean_return": value} for step, value in pairs]


def test_score_of_a_run_is_its_best_or_last_round() -> None:
    lines = rounds((10, 1.0), (20, 7.0), (30, 3.0))
    assert (run_score(lines, "best"), run_score(lines, "last")) == (7.0, 3.0)


def test_round_before_the_first_update_is_no_score() -> None:
    untrained, trained = ({**line, "updates": i} for i, line in enumerate(rounds((0, 340.0), (10, 12.0))))
    assert run_score([untrained, trained], "best") == run_score([untrained, trained], "last") == 12.0
    assert run_score([untrained], "last") is None


def test_return_that_is_not_finite_is_no_score() -> None:
    lines = rounds((10, 1.0), (20, None))
    assert (run_score(lines, "best"), run_score(lines, "last")) == (1.0, None)
    assert run_score(rounds((10, None)), "best") is None
    assert run_score([], "best") is run_score([], "last") is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12))
def test_interquartile_mean_is_that_of_the_middle_half(scores: list[float]) -> None:
    # Each value four times: then a quarter is a whole number of them.
    repeated = sorted(score for score in scores for _ in range(4))
    middle = repeated[len(scores) : -len(scores)]
    assert math.isclose(over_seeds(scores, "iqm"), sum(middle) / len(middle), rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(over_seeds(scores, "mean"), sum(scores) / len(scores), rel_tol=1e-9, abs_tol=1e-9)


def test_one_failed_seed_moves_the_mean_and_not_the_interquartile_mean() -> None:
    scores = [-1000.0, 9.0, 10.0, 10.0, 11.0]
    assert over_seeds(scores, "iqm") == pytest.approx(9.8, abs=0.3)
    assert over_seeds(scores, "mean") == pytest.approx(-192.0)


def test_curve_has_the_first_round_after_so_many_env_steps() -> None:
    lines = rounds((50, 1.0), (100, 2.0), (120, 3.0), (350, 4.0), (380, None), (400, None))
    found = curve(lines, 100)
    assert {step: value for step, value in found.items() if step < 400} == {100: 2.0, 200: 4.0, 300: 4.0}
    assert math.isnan(found[400])
    assert curve([{"kind": "round", "mean_return": 3.0}, *rounds((100, 1.0))], 100) == {100: 1.0}


def test_curve_never_changes_what_it_said() -> None:
    lines = rounds((90, 1.0), (210, 2.0), (230, 9.0), (310, 3.0))
    before: dict[int, float] = {}
    for count in range(len(lines) + 1):
        now = curve(lines[:count], 100)
        assert before.items() <= now.items()
        before = now


def test_report_waits_for_all_seeds_that_have_begun() -> None:
    assert reports({0: {100: 1.0, 200: 2.0}, 1: {100: 3.0}}, frozenset()) == {100: 2.0}
    assert reports({0: {100: 1.0}, 1: {}}, frozenset()) == {}
    assert reports({}, frozenset()) == {}


def test_seed_that_ended_early_keeps_its_last_return() -> None:
    assert reports({0: {100: 1.0, 200: 2.0}, 1: {100: 3.0}}, frozenset({1})) == {100: 2.0, 200: 2.5}
    assert reports({0: {100: 1.0}, 1: {}}, frozenset({1})) == {100: 1.0}
