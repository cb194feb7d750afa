"""Schedules against their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal.base.schedules import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    PerEnvSchedule,
    PiecewiseSchedule,
    ape_x_epsilon,
    schedule_from_config,
)


def test_constant_is_the_same_for_ever() -> None:
    assert [ConstantSchedule(0.3)(step) for step in (0, 1, 10**9)] == [0.3] * 3


@pytest.mark.parametrize(("start", "end"), [(1.0, 0.1), (0.1, 1.0)])
def test_linear_goes_from_start_to_end_and_stays(start: float, end: float) -> None:
    schedule = LinearSchedule(start, end, steps=100, begin=50)
    assert [schedule(step) for step in (0, 50)] == [start, start]
    for step in range(50, 151):
        assert schedule(step) == pytest.approx(start + (end - start) * (step - 50) / 100)
    assert [schedule(step) for step in (150, 151, 10**9)] == [end] * 3


def test_cosine_is_slow_at_both_ends_and_stays() -> None:
    schedule = CosineSchedule(3e-4, 1.5e-4, steps=100, begin=50)
    for step in range(50, 151):
        expected = 1.5e-4 + 0.5 * (3e-4 - 1.5e-4) * (1 + np.cos(np.pi * (step - 50) / 100))
        assert schedule(step) == pytest.approx(expected)
    assert [schedule(step) for step in (0, 50, 150, 10**9)] == [3e-4, 3e-4, 1.5e-4, 1.5e-4]
    assert repr(schedule) == "CosineSchedule(0.0003, 0.00015, 100, begin=50)"


def test_piecewise_interpolates_between_its_points() -> None:
    points = [(10, 1.0), (20, 0.5), (100, 0.1)]
    schedule = PiecewiseSchedule(points)
    steps = [0, 9, 10, 13, 20, 21, 60, 99, 100, 101, 10**9]
    expected = np.interp(steps, [step for step, _ in points], [value for _, value in points])
    np.testing.assert_allclose([schedule(step) for step in steps], expected)
    assert PiecewiseSchedule([(5, 0.2)])(3) == PiecewiseSchedule([(5, 0.2)])(7) == 0.2


def test_ape_x_rates_of_the_paper() -> None:
    rates = [ape_x_epsilon(index, 8) for index in range(8)]
    np.testing.assert_allclose(rates, [0.4 ** (1 + 7 * index / 7) for index in range(8)])
    assert rates[0] == pytest.approx(0.4)
    assert rates[-1] == pytest.approx(0.4**8)
    assert ape_x_epsilon(0, 1, base=0.3) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("config", "step", "value"),
    [
        (0.25, 7, 0.25),
        ({"type": "constant", "value": 0.5}, 7, 0.5),
        ({"type": "linear", "start": 1.0, "end": 0.0, "steps": 10}, 5, 0.5),
        ({"type": "linear", "start": 1.0, "end": 0.0, "steps": 10, "begin": 5}, 10, 0.5),
        ({"type": "piecewise", "points": [[0, 1.0], [10, 0.0]]}, 4, 0.6),
        ([[0, 1.0], [10, 0.0]], 4, 0.6),
    ],
)
def test_schedule_from_plain_data(config: Any, step: int, value: float) -> None:
    assert schedule_from_config(config)(step) == pytest.approx(value)


def test_ape_x_from_plain_data_gives_each_environment_its_place() -> None:
    schedule = schedule_from_config({"type": "ape_x", "base": 0.5, "alpha": 3.0}, indices=[4, 5], count=6)
    assert isinstance(schedule, PerEnvSchedule)
    np.testing.assert_allclose(schedule(0), [0.5 ** (1 + 3 * 4 / 5), 0.5**4])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"type": "liner"}, "'liner' is unknown"),
        ({"value": 1.0}, "None is unknown"),
        ({"type": "linear", "start": 1.0, "end": 0.0}, "steps"),
        ({"type": "linear", "start": 1.0, "end": 0.0, "steps": 10, "stop": 3}, "stop"),
        ({"type": "linear", "start": 1.0, "end": 0.0, "steps": 0}, "steps is 0; it must be >= 1"),
        ({"type": "linear", "start": 1.0, "end": 0.0, "steps": 1, "begin": -1}, "begin is -1"),
        ({"type": "piecewise", "points": []}, "at least one point"),
        ({"type": "piecewise", "points": [[5, 1.0], [5, 0.0]]}, "rise"),
        ({"type": "ape_x", "base": 0.0}, "base is 0.0"),
        ({"type": "ape_x", "alpha": -1.0}, "alpha is -1.0"),
    ],
)
def test_bad_data_is_named(config: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule_from_config(config)


def test_an_actor_beyond_the_count_is_refused() -> None:
    with pytest.raises(ValueError, match="actor 3 of 3"):
        ape_x_epsilon(3, 3)
    with pytest.raises(ValueError, match="at least one value"):
        PerEnvSchedule([])
