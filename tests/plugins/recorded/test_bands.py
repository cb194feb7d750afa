"""Curves of runs and of groups."""

from __future__ import annotations

import numpy as np
import pytest

from surreal.plugins.recorded.curves import Axis, Line, group_band, line_of, run_line, smooth
from surreal.plugins.recorded.history import Rows

RNG = np.random.default_rng(0)


def rows(step: list[float], value: list[float]) -> Rows:
    steps = np.array(step)
    return Rows(1000.0 + steps / 10, steps, steps / 2, np.array(value))


@pytest.mark.parametrize(("axis", "x"), [(Axis.STEPS, [0, 10]), (Axis.UPDATES, [0, 5]), (Axis.SECONDS, [0, 1])])
def test_a_curve_goes_along_what_was_asked_for(axis: Axis, x: list[float]) -> None:
    assert line_of(rows([0, 10], [1, 2]), axis, 1000.0).x.tolist() == x


def test_points_of_which_nobody_knows_the_place_are_left_out() -> None:
    of = rows([0, 10], [1, 2])._replace(updates=np.array([np.nan, 3.0]))
    assert line_of(of, Axis.UPDATES, 0.0).y.tolist() == [2.0]
    assert len(line_of(of._replace(updates=np.full(2, np.nan)), Axis.UPDATES, 0.0).x) == 0


def test_what_a_run_did_again_counts_as_it_was_the_last_time() -> None:
    # It went back from step 30 to a checkpoint at 15.
    line = line_of(rows([0, 10, 20, 30, 20, 30, 40], [0, 1, 2, 3, 7, 8, 9]), Axis.STEPS, 0.0)
    assert line.x.tolist() == [0, 10, 20, 30, 40]
    assert line.y.tolist() == [0, 1, 7, 8, 9]


def test_processes_of_a_run_are_averaged_and_rates_add_up() -> None:
    curves = {"agent-0": rows([0, 10], [0, 10]), "agent-1": rows([0, 5, 10], [2, 2, 2])}
    mean = run_line(curves, "agent/episode_return", Axis.STEPS, 0.0)
    assert (mean.x.tolist(), mean.y.tolist()) == ([0, 5, 10], [1, 3.5, 6])
    assert run_line(curves, "agent/env_steps_per_s", Axis.STEPS, 0.0).y.tolist() == [2, 7, 12]
    assert run_line(curves, "learner/updates_per_s", Axis.STEPS, 0.0).y.tolist() == [
        1,
        3.5,
        6,
    ]  # ranks do each together
    assert len(run_line({}, "x/y", Axis.STEPS, 0.0).x) == 0


def test_smoothing_is_that_of_a_naive_loop_and_has_no_bias_at_the_beginning() -> None:
    values = np.random.default_rng(1).normal(5.0, 1.0, 30)
    expected = []
    for i in range(30):
        weights = [0.8 ** (i - j) for j in range(i + 1)]
        expected.append(sum(w * v for w, v in zip(weights, values, strict=False)) / sum(weights))
    np.testing.assert_allclose(smooth(values, 0.8), expected)
    np.testing.assert_array_equal(smooth(values, 0.0), values)
    assert np.isnan(smooth(np.array([np.nan, 1.0]), 0.5)).tolist() == [True, False]


def test_band_of_several_runs_holds_their_interquartile_mean() -> None:
    x = np.array([0.0, 100.0])
    lines = [Line(x, np.array([0.0, end])) for end in (10.0, 20.0, 30.0, 1000.0)]
    band = group_band(lines, [""] * 4, RNG)
    assert (band.x[0], band.x[-1], band.middle[-1]) == (0.0, 100.0, 25.0)
    assert (band.low <= band.middle).all() and (band.middle <= band.high).all()
    assert (band.low[-1], band.runs.tolist()) == (pytest.approx(12.5, abs=5), [4] * 300)


def test_one_run_has_no_band_and_keeps_its_own_points() -> None:
    band = group_band([Line(np.array([1.0, 5.0]), np.array([2.0, 3.0]))], [""], RNG)
    assert (band.x.tolist(), band.middle.tolist()) == ([1.0, 5.0], [2.0, 3.0])
    assert np.isnan(band.low).all()


def test_a_group_ends_where_more_than_half_of_its_runs_have_ended() -> None:
    lines = [Line(np.array([0.0, end]), np.array([1.0, 1.0])) for end in (50.0, 100.0, 200.0)]
    band = group_band([*lines, Line(np.empty(0), np.empty(0))], [""] * 4, RNG)
    assert 99.0 < band.x[-1] <= 100.0
    assert (band.runs[0], band.runs[-1]) == (3, 2)


def test_runs_without_points_make_no_curve() -> None:
    assert len(group_band([Line(np.empty(0), np.empty(0))], [""], RNG).x) == 0
