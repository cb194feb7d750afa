"""When a run will end, as far as anybody can say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from surreal.config import load_config
from surreal.run.view.live.trend import Bound, RunLimits, TimedReturn, Trend, nearest_bound, seconds_to_goal
from surreal.run.view.run_view import RunView

HALF_WAY = replace(RunView(()), env_steps=500, updates=90, steps_per_s=10.0, updates_per_s=1.0)


def nearest(limits: RunLimits, snapshot: RunView = HALF_WAY, elapsed_s: float = 50.0) -> Bound | None:
    history = Trend()
    history.add(snapshot, 0.0)
    return nearest_bound(limits, snapshot, history, elapsed_s)


def rounds(values: Sequence[float], interval_s: float = 10.0) -> list[TimedReturn]:
    return [TimedReturn(index * interval_s, value) for index, value in enumerate(values)]


def test_a_configuration_says_what_ends_its_run() -> None:
    config = load_config("cartpole-dqn", ["learner.max_updates=7", "run.max_time_s=60", "run.stop_at_return=475"])
    assert RunLimits.of(config) == (60_000, 7, 60.0, 475.0)


def test_the_limit_that_is_reached_first_is_the_nearest() -> None:
    assert nearest(RunLimits(max_env_steps=1000)) == ("env steps", 500, 1000, 50.0, 0.0)
    assert nearest(RunLimits(max_env_steps=1000, max_updates=100)) == ("updates", 90, 100, 10.0, 0.0)
    found = nearest(RunLimits(max_env_steps=1000, max_updates=100, max_time_s=55.0))
    assert found == ("time", 50.0, 55.0, 5.0, 0.0)
    assert nearest(RunLimits()) is None


def test_a_run_that_stands_still_has_no_time_left_to_name() -> None:
    standing = replace(HALF_WAY, steps_per_s=0.0, updates_per_s=0.0)
    found = nearest(RunLimits(max_env_steps=1000, max_updates=100), standing)
    assert found is not None
    assert (found.name, found.left_s, found.share) == ("updates", None, 0.9)


def test_a_limit_that_is_passed_is_whole_and_has_nothing_left() -> None:
    found = nearest(RunLimits(max_env_steps=100))
    assert found is not None
    assert (found.left_s, found.share) == (0.0, 1.0)


def test_a_line_of_rounds_gives_the_time_to_the_goal() -> None:
    assert seconds_to_goal(rounds([0, 10, 20, 30, 40, 50]), 70.0) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("values", "goal"),
    [
        ([0, 10, 20, 30], 40.0),  # too few
        ([50, 40, 30, 20, 10, 0], 70.0),  # falls
        ([20, 20, 20, 20, 20, 20], 21.0),  # stands
        ([0, 60, 5, 50, 20, 70], 100.0),  # who knows
        ([0, 10, 20, 30, 40, 50], 80.0),  # farther than one can see
        ([0, 10, 20, 30, 40, 50], 45.0),  # was reached, and not confirmed
        ([math.nan, 10, math.nan, 30, math.nan, 50], 60.0),
        ([0, 1e300, 0, -1e300, 10, math.inf], 60.0),
    ],
)
def test_no_time_to_the_goal_is_given_where_there_is_no_trend_to_trust(values: list[float], goal: float) -> None:
    assert seconds_to_goal(rounds(values), goal) is None


def test_rounds_that_came_at_once_are_no_trend() -> None:
    assert seconds_to_goal(rounds([0, 10, 20, 30, 40, 50], interval_s=0.0), 80.0) is None


def test_noise_around_a_level_is_rarely_taken_for_a_trend() -> None:
    """Of 500 flat curves, a slope of three standard errors should be below 2% (t, 8 degrees of freedom: 0.9%)."""
    rng = np.random.default_rng(1)
    found = [seconds_to_goal(rounds(list(rng.normal(0.0, 1.0, 10))), 2.0) for _ in range(500)]
    assert sum(each is not None for each in found) <= 10


def test_the_bar_keeps_its_measure_however_near_the_goal_is() -> None:
    history, limits = Trend(), RunLimits(max_env_steps=1000, stop_at_return=70.0)
    history.add(HALF_WAY, 0.0)
    for number, (time_s, value) in enumerate(rounds([0, 10, 20, 30, 40, 50])):
        history.add_round(value, number + 1, time_s)
    far = limits._replace(stop_at_return=475.0)
    for each in (limits, far):
        found = nearest_bound(each, HALF_WAY, history, 50.0)
        assert found is not None and found.name == "env steps"
    alone = nearest_bound(limits._replace(max_env_steps=None), HALF_WAY, history, 50.0)
    assert alone == ("eval return", 50.0, 70.0, pytest.approx(20.0), 0.0)
    alone = nearest_bound(far._replace(max_env_steps=None), HALF_WAY, history, 50.0)
    assert alone is not None and (alone.name, alone.left_s) == ("eval return", None)
    assert alone.share == pytest.approx(50 / 475)


def test_a_goal_below_zero_has_a_share_too() -> None:
    assert Bound("eval return", -600.0, -200.0, None, start=-1000.0).share == 0.5
    assert math.isnan(Bound("eval return", -100.0, -200.0, None, start=-150.0).share)
    assert math.isnan(Bound("eval return", math.nan, -200.0, None, start=-150.0).share)
