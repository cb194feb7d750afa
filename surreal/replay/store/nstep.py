"""n-step transitions out of raw steps, for a whole chunk at once.

For step j of a segment, with rewards r_j, r_{j+1}, ... and h = min(n, steps left in the segment from j on):

    reward_j   = r_j + gamma r_{j+1} + ... + gamma^{h-1} r_{j+h-1}
    discount_j = gamma^h * (1 - terminated_{j+h-1})
    next row_j = obs_row_j + h

so target_j = reward_j + discount_j * V(next row_j). A segment ends where its episode ends or was cut; elsewhere its
lookahead makes h = n. Sutton 1988; the ancestors' mistakes (wrong heads, lost tails) are what the tests look at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class NStep(NamedTuple):
    """One entry for each step that asked for."""

    reward: NDArray[np.float32]  #: [M]
    discount: NDArray[np.float32]  #: [M]
    horizon: NDArray[np.int64]  #: [M] h, the number of steps summed


def n_step(
    obs_row: NDArray[np.int64],
    reward: NDArray[np.float32],
    terminated: NDArray[np.bool_],
    steps: NDArray[np.int64],
    *,
    n: int,
    gamma: float,
) -> NStep:
    """Compute n-step rewards and discounts.

    Args:
        obs_row: [S] observation row of every step of a chunk, lookahead included; a gap begins a new segment.
        reward: [S] reward of every step.
        terminated: [S] whether the step ended its episode in a terminal state.
        steps: [M] positions of the steps to compute, those the chunk owns.
        n: steps to sum, >= 1.
        gamma: discount factor of one step, 0..1.
    """
    if n == 1:
        ones = np.ones(len(steps), np.int64)
        discount = np.float32(gamma) * (1 - terminated[steps].astype(np.float32))
        return NStep(reward[steps], discount.astype(np.float32), ones)
    is_end = np.ones(len(obs_row), np.bool_)
    is_end[:-1] = np.diff(obs_row) != 1
    ends = np.flatnonzero(is_end)
    horizon = np.minimum(n, ends[np.searchsorted(ends, steps)] - steps + 1)
    total: NDArray[Any] = np.zeros(len(steps), np.float64)
    for offset in range(n):
        inside = np.minimum(steps + offset, len(reward) - 1)
        total += np.where(offset < horizon, gamma**offset * reward[inside].astype(np.float64), 0.0)
    discount = gamma ** horizon.astype(np.float64) * (1 - terminated[steps + horizon - 1].astype(np.float64))
    return NStep(total.astype(np.float32), discount.astype(np.float32), horizon)
