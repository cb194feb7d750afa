"""Uniform numbers, and how many batches are made ahead."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import UserCodeError
from surreal.replay.batches import ExpFetcherQueue, check_sampled
from surreal.replay.store.rows import sample_uniform


class Fixed:
    """A generator that always draws one number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, size: int) -> Any:
        return np.full(size, self.value)


@given(st.integers(0, 2**40), st.integers(1, 2**31))
def test_the_largest_and_smallest_floats_give_the_last_and_first_number(begin: int, count: int) -> None:
    assert sample_uniform(Fixed(0.0), begin, begin + count, 2).tolist() == [begin, begin]  # type: ignore[arg-type]
    largest = np.nextafter(1.0, 0.0)
    assert sample_uniform(Fixed(largest), begin, begin + count, 1).tolist() == [begin + count - 1]  # type: ignore[arg-type]


def test_all_numbers_are_equally_likely() -> None:
    drawn = sample_uniform(np.random.default_rng(0), 100, 110, 100_000)
    found = np.bincount(drawn - 100, minlength=10)
    assert len(found) == 10
    statistic = float(((found - 10_000) ** 2 / 10_000).sum())
    assert statistic < 27.9  # chi-square with 9 degrees of freedom: p = 0.001


class Made(NamedTuple):
    obs: torch.Tensor
    next_obs: torch.Tensor


@pytest.mark.parametrize(
    ("row_bytes", "ahead"), [(1, 16), (1 << 19, 16), ((1 << 19) + 1, 15), (3 << 20, 2), (100 << 20, 2)]
)
def test_as_many_batches_are_made_ahead_as_fit(row_bytes: int, ahead: int) -> None:
    batch: Any = Made(torch.empty(row_bytes, dtype=torch.uint8), torch.empty(row_bytes, dtype=torch.uint8))
    queue = ExpFetcherQueue(None)
    assert queue.room == 2, "before the size of a batch is known"
    queue.put(batch)
    assert queue.room == ahead - 1
    queue.hand_over()
    assert (queue.room, len(queue)) == (ahead - 1, 1)
    assert queue.dequeue(0.0) is batch


def test_who_names_a_number_gets_it() -> None:
    queue = ExpFetcherQueue(5)
    queue.put(Made(torch.empty(100 << 20, dtype=torch.uint8), torch.empty(0)))  # type: ignore[arg-type]
    assert queue.room == 4


class Sampler:
    def _sample(self, batch_size: int) -> Any:
        """Named in the errors."""


def checked(sampled: Any) -> Any:
    return check_sampled(sampled, Sampler()._sample, alive=range(10, 20), batch_size=3)


@pytest.mark.parametrize(
    ("sampled", "problem"),
    [
        (np.array([10, 20, 11]), r"gives 20; those that can be sampled now are 10 \.\. 19"),
        (np.array([9, 10, 11]), "gives 9;"),
        (np.array([10, 11]), r"shape \(2,\); 3 were asked for"),
        (np.array([[10], [11], [12]]), r"shape \(3, 1\)"),
        (np.array([10.0, 11.0, 12.0]), "gives float64; it must give an array of integers"),
        ([10, 11, 12], "gives list"),
        ((np.array([10, 11, 12]), np.array([0.1, 0.0, 0.1])), r"not all in \(0, 1\]"),
        ((np.array([10, 11, 12]), np.array([0.1, np.nan, 0.1])), r"not all in \(0, 1\]"),
        ((np.array([10, 11, 12]), np.array([0.1])), r"probabilities of shape \(1,\)"),
    ],
)
def test_samples_that_nobody_could_gather_are_refused_with_file_and_line(sampled: Any, problem: str) -> None:
    with pytest.raises(UserCodeError, match=rf"Sampler\._sample \(test_batches\.py line \d+\) .*{problem}"):
        checked(sampled)


def test_samples_of_the_live_are_passed_on() -> None:
    numbers = np.array([10, 19, 10])
    probability = np.array([1.0, 0.5, 0.1])
    found = checked(numbers)
    assert found[0] is numbers
    assert found[1] is None
    found = checked((numbers, probability))
    assert found[0] is numbers
    assert found[1] is probability
