"""Rewards of all forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal.rlx.pool.states import RewardReader
from surreal.rlx.protocol.errors import RlxRequestError, RlxValueError


@pytest.mark.parametrize(
    ("reward", "expected"),
    [(1.5, 1.5), (-2, -2.0), (True, 1.0), ([1, 2.5], 3.5), (np.array([1, 2]), 3.0), (np.array(4.0), 4.0)],
)
def test_reward_is_a_number_or_a_sum(reward: Any, expected: float) -> None:
    assert RewardReader().read(reward) == expected


def test_weights_make_the_scalar_that_is_learned_from() -> None:
    reader = RewardReader([1, 0, -0.5])
    assert reader.read([2, 100, 2]) == 1.0
    assert reader.read(7) == 7.0
    with pytest.raises(RlxRequestError, match="must have 3 numbers, got 2"):
        reader.read([1, 2])


def test_number_that_would_do_damage_is_named() -> None:
    for reward, text in ((float("nan"), "nan"), (-1e10, "-1000000"), ([1e300, -1e300], r"1e\+300"), (10**400, "1000")):
        with pytest.raises(RlxValueError, match=f"the reward is {text}"):
            RewardReader().read(reward)
    assert RewardReader(largest=1e12).read(1e10) == 1e10


@pytest.mark.parametrize(
    "reward",
    [
        "1", {"a": 1}, ["x"], [], np.zeros(0), [[1]], float("nan"), float("inf"), 1e39, [1e308, 1e308], 10**400,
        [10**400], np.zeros((2, 2)), np.array(["a"]),
    ],
)  # fmt: skip
def test_anything_else_is_refused(reward: Any) -> None:
    with pytest.raises(RlxRequestError, match="reward"):
        RewardReader().read(reward)
