"""n-step transitions against a naive loop over episodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from surreal.replay.store.storage import n_step
from tests.examples import examples


def naive(rewards: list[float], terminated: bool, first: int, n: int, gamma: float) -> tuple[float, float, int]:
    """Reward, discount and horizon of the step `first` of a segment that ends with these rewards."""
    total, horizon = 0.0, 0
    while horizon < n and first + horizon < len(rewards):
        total += gamma**horizon * rewards[first + horizon]
        horizon += 1
    reaches_the_end = first + horizon == len(rewards)
    return total, 0.0 if terminated and reaches_the_end else gamma**horizon, horizon


def columns(
    segments: list[tuple[list[float], bool, int]],
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64]]:
    """Columns of a chunk of these segments: (rewards, terminated, own steps)."""
    rows: list[int] = []
    rewards: list[float] = []
    terminated: list[bool] = []
    own: list[int] = []
    row = 0
    for segment_rewards, ends, number in segments:
        own += range(len(rewards), len(rewards) + number)
        rows += range(row, row + len(segment_rewards))
        rewards += segment_rewards
        terminated += [False] * (len(segment_rewards) - 1) + [ends]
        row += len(segment_rewards) + 1
    return np.array(rows), np.array(rewards, np.float32), np.array(terminated), np.array(own, np.int64)


segment = st.tuples(st.lists(st.integers(-8, 8).map(float), min_size=1, max_size=9), st.booleans())


@examples(200)
@given(
    parts=st.lists(segment, min_size=1, max_size=5),
    n=st.integers(1, 6),
    gamma=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    data=st.data(),
)
def test_every_step_is_what_the_naive_loop_says(
    parts: list[tuple[list[float], bool]], n: int, gamma: float, data: st.DataObject
) -> None:
    segments = [(rewards, ends, data.draw(st.integers(0, len(rewards)))) for rewards, ends in parts]
    rows, rewards, terminated, own = columns(segments)
    got = n_step(rows, rewards, terminated, own, n=n, gamma=gamma)
    expected = [
        naive(segment_rewards, ends, first, n, gamma)
        for segment_rewards, ends, number in segments
        for first in range(number)
    ]
    np.testing.assert_allclose(got.reward, [reward for reward, _, _ in expected], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(got.discount, [discount for _, discount, _ in expected], rtol=1e-6)
    np.testing.assert_array_equal(got.horizon, [horizon for _, _, horizon in expected])
    assert (got.reward.dtype, got.discount.dtype) == (np.float32, np.float32)


@pytest.mark.parametrize(
    ("terminated", "discounts"), [(True, [0.125, 0.0, 0.0, 0.0]), (False, [0.125, 0.125, 0.25, 0.5])]
)
def test_tails_are_kept_and_a_truncated_episode_still_bootstraps(terminated: bool, discounts: list[float]) -> None:
    rows, rewards, flags, own = columns([([1.0, 2.0, 4.0, 8.0], terminated, 4)])
    got = n_step(rows, rewards, flags, own, n=3, gamma=0.5)
    assert got.reward.tolist() == [3.0, 6.0, 8.0, 8.0]
    assert got.discount.tolist() == discounts
    assert got.horizon.tolist() == [3, 3, 2, 1]


def test_lookahead_steps_are_summed_but_not_returned() -> None:
    rows, rewards, flags, own = columns([([1.0, 2.0, 4.0], False, 1)])
    got = n_step(rows, rewards, flags, own, n=3, gamma=1.0)
    assert (got.reward.tolist(), got.discount.tolist(), got.horizon.tolist()) == ([7.0], [1.0], [3])


def test_nothing_crosses_from_one_segment_into_the_next() -> None:
    rows, rewards, flags, own = columns([([1.0], False, 1), ([100.0, 200.0], True, 2)])
    got = n_step(rows, rewards, flags, own, n=5, gamma=1.0)
    assert got.reward.tolist() == [1.0, 300.0, 200.0]
    assert got.discount.tolist() == [1.0, 0.0, 0.0]


def test_many_small_rewards_are_summed_in_double_precision() -> None:
    rewards = [16_777_216.0] + [1.0] * 9
    rows, values, flags, own = columns([(rewards, False, 1)])
    assert n_step(rows, values, flags, own, n=10, gamma=1.0).reward[0] == np.float32(sum(rewards))
