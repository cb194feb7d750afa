"""Uniform numbers, and how many batches are made ahead."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal.replay.engine.fetcher import ExpFetcherQueue
from surreal.replay.engine.sampling import sample_uniform


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
    ("row_bytes", "ahead"), [(1, 8), (1 << 20, 8), ((1 << 20) + 1, 7), (3 << 20, 2), (100 << 20, 2)]
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
