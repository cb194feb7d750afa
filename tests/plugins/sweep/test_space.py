"""Values of settings: lists, ranges, and every combination of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from surreal.plugins.sweep.schema import Choice, Range, combinations, num_combinations


@pytest.mark.parametrize(
    ("given", "points"),
    [
        ({"low": 1e-4, "high": 1e-2, "log": True, "count": 3}, (1e-4, 1e-3, 1e-2)),
        ({"low": 0.0, "high": 1.0, "count": 5}, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ({"low": 16, "high": 256, "log": True, "count": 5}, (16, 32, 64, 128, 256)),
        ({"low": 1, "high": 3, "count": 9}, (1, 2, 3)),  # whole numbers, each once
        ({"low": 1, "high": 3, "count": 1}, (1,)),
        ({"low": 0.5, "high": 3, "count": 2}, (0.5, 3)),
    ],
)
def test_points_of_a_range(given: dict[str, Any], points: tuple[float, ...]) -> None:
    assert Range(**given).points() == points


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.booleans(), st.integers(2, 50))
def test_points_rise_from_end_to_end(one: float, other: float, log: bool, count: int) -> None:
    low, high = sorted((one, other))
    if high < low * 1.01:
        return
    points = Range(low=low, high=high, log=log, count=count).points()
    assert (points[0], points[-1]) == (low, high)
    assert len(points) <= count
    assert all(low <= value <= high for value in points)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"low": 1, "high": 1}, "low must be < high"),
        ({"low": 0, "high": 1, "log": True}, "with log it must be > 0"),
        ({"low": 1.0, "high": 2.0, "log": True, "step": 0.5}, "step and log exclude each other"),
        ({"low": 1, "high": 9, "step": 0.5}, "between whole numbers it must be whole"),
        ({"low": 1, "high": 9, "count": 0}, "greater than or equal to 1"),
        ({"low": True, "high": 9}, "low"),
    ],
)
def test_range_that_makes_no_sense_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Range(**given)


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3))
def test_combinations_are_those_of_nested_loops(values: dict[str, list[int]]) -> None:
    grid = {key: Choice(tuple(each)) for key, each in values.items()}
    found = combinations(grid)
    assert len(found) == num_combinations(grid)
    assert found == [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


def test_grid_of_nothing_is_one_trial() -> None:
    assert combinations({}) == [{}]
