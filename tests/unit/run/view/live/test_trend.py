"""What is remembered of a run, in bounded memory."""

from __future__ import annotations

import math
from dataclasses import replace

from surreal.run.view.live.trend import Curve, Trend, mean
from surreal.run.view.run_view import RunView

NOTHING = RunView(())


def test_a_long_curve_keeps_its_shape_in_few_points() -> None:
    curve = Curve(max_points=8)
    for value in range(1000):
        curve.add(float(value))
    points = curve.points
    assert 4 <= len(points) <= 9
    assert list(points) == sorted(points)
    assert points[0] < 200 and points[-1] > 800
    assert math.isclose(points[0], mean(range(128)))  # each is the mean of as many values


def test_a_curve_has_its_newest_value_before_its_group_is_full() -> None:
    curve = Curve(max_points=2)
    for value in (1.0, 3.0, 10.0):
        curve.add(value)
    assert curve.points == (2.0, 10.0)


def test_a_return_that_is_no_number_is_a_gap_and_spoils_nothing() -> None:
    curve = Curve(max_points=4)
    for value in (1.0, math.nan, 3.0, math.inf, math.nan, math.nan):
        curve.add(value)
    assert curve.points[:2] == (1.0, 3.0)
    assert math.isnan(curve.points[2])


def test_each_round_is_a_point_once_however_often_it_is_seen() -> None:
    history = Trend()
    history.add_round(5.0, 1, -10.0)  # from before
    for second, (rounds, value) in enumerate([(1, 5.0), (1, 5.0), (2, 7.0), (2, 7.0), (0, 7.0), (4, math.nan)]):
        history.add(replace(NOTHING, eval_rounds=rounds, eval_return=value), float(second))
    assert history.eval_returns.points[:2] == (5.0, 7.0)
    assert [round_.time_s for round_ in history.rounds] == [-10.0, 2.0, 5.0]


def test_training_has_a_point_a_second() -> None:
    history = Trend()
    for tick in range(11):
        history.add(replace(NOTHING, episode_return=float(tick)), tick / 2)
    assert history.returns.points == (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)


def test_the_pace_is_that_of_the_last_half_minute() -> None:
    history = Trend()
    history.add(replace(NOTHING, steps_per_s=1e6), 59.0)
    assert math.isnan(history.steps_per_s)  # it has not begun to learn
    for second in range(60):
        pace = 1000.0 if second < 29 else 10.0
        history.add(replace(NOTHING, updates=1, steps_per_s=pace, updates_per_s=2.0), float(second))
    assert (history.steps_per_s, history.updates_per_s) == (10.0, 2.0)


def test_a_process_that_began_again_is_counted() -> None:
    history = Trend()
    history.add(replace(NOTHING, lives=frozenset({("agent-0", "a"), ("agent-0", "b"), ("agent-1", "x")})), 0.0)
    assert history.restarts == {"agent-0": 1}
    for _ in range(2):
        history.add(replace(NOTHING, lives=frozenset({("agent-0", "c"), ("agent-1", "x")})), 1.0)
    assert history.restarts == {"agent-0": 2}
