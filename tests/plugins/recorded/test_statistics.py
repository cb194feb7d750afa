"""The interquartile mean and its interval, against naive ones."""

from __future__ import annotations

import numpy as np
import pytest

from surreal.plugins.recorded.curves import bootstrap_interval, interquartile_mean


def naive_mean(values: list[float]) -> float:
    """Drop a quarter of the numbers at each end, one by one."""
    kept = sorted(values)
    for _ in range(int(0.25 * len(values))):
        kept.pop(0)
        kept.pop()
    return sum(kept) / len(kept)


def naive_interval(
    strata: list[list[list[float]]], rng: np.random.Generator, resamples: int
) -> list[tuple[float, float]]:
    """Draw the runs of each task again, one at a time, and look at the 2.5 % at each end of what comes of it."""
    points = len(strata[0][0])
    drawn = [[rng.integers(0, len(runs), len(runs)) for _ in range(resamples)] for runs in strata]
    ends = []
    for point in range(points):
        means = []
        for draw in range(resamples):
            sample = [runs[i][point] for runs, index in zip(strata, drawn, strict=True) for i in index[draw]]
            means.append(naive_mean(sample))
        means.sort()
        ends.append((means[round(0.025 * (resamples - 1))], means[round(0.975 * (resamples - 1))]))
    return ends


@pytest.mark.parametrize("runs", range(1, 14))
def test_interquartile_mean_is_that_of_a_naive_loop(runs: int) -> None:
    values = np.random.default_rng(runs).normal(size=(runs, 3))
    expected = [naive_mean(list(column)) for column in values.T]
    np.testing.assert_allclose(interquartile_mean(values), expected)
    np.testing.assert_allclose(interquartile_mean(values.T, axis=1), expected)


def test_one_lucky_run_moves_a_mean_and_not_the_interquartile_mean() -> None:
    values = np.array([[1.0], [2.0], [3.0], [1000.0]])
    assert interquartile_mean(values).tolist() == [2.5]


def test_interval_is_that_of_a_naive_loop_within_the_noise_of_drawing() -> None:
    rng = np.random.default_rng(0)
    strata = [rng.normal(size=(6, 2)), rng.normal(3.0, 1.0, size=(4, 2))]
    low, high = bootstrap_interval(strata, np.random.default_rng(1), resamples=3000)
    naive = naive_interval([runs.tolist() for runs in strata], np.random.default_rng(2), 3000)
    # The ends are themselves means of chance: with 3,000 draws they vary by about 0.02 here.
    np.testing.assert_allclose(np.stack([low, high], axis=1), naive, atol=0.1)


def test_each_task_is_drawn_from_for_itself() -> None:
    # Without strata, some draws would take more runs of the second task than of the first.
    low, high = bootstrap_interval([np.zeros((3, 1)), np.ones((3, 1))], np.random.default_rng(0))
    assert (low.item(), high.item()) == (0.5, 0.5)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, hits = np.random.default_rng(0), 0
    for _ in range(200):
        low, high = bootstrap_interval([rng.normal(size=(20, 1))], rng, confidence=0.9, resamples=300)
        hits += bool(low[0] <= 0.0 <= high[0])
    # 90 % of 200 is 180, with a deviation of 4; intervals of percentiles are a little too narrow with 20 runs.
    assert 160 <= hits <= 195


def test_blocks_that_bound_the_memory_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [np.random.default_rng(0).normal(size=(5, 4))]
    whole = bootstrap_interval(values, np.random.default_rng(1), resamples=50)
    monkeypatch.setattr("surreal.plugins.recorded.curves._BLOCK", 60)
    np.testing.assert_array_equal(bootstrap_interval(values, np.random.default_rng(1), resamples=50), whole)
