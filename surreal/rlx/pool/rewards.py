"""Makes the scalar that is learned from out of what a client sends as reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from surreal.rlx.protocol.errors import RlxRequestError

#: Magnitude of the largest reward, which experience holds as float32.
LARGEST_REWARD = float(np.finfo(np.float32).max)


class RewardReader:
    """Reads a number as it is, and a list of numbers as their weighted sum.

    Args:
        weights: one for each number of a list; None adds lists of any length up.
    """

    def __init__(self, weights: Sequence[float] | None = None) -> None:
        self._weights = None if weights is None else [float(weight) for weight in weights]

    def read(self, reward: Any) -> float:
        """Give the reward as a number that a float32 can hold.

        Raises:
            RlxRequestError: it is neither, or not finite, or has not as many numbers as there are weights.
        """
        value = reward if type(reward) is float else self._number(reward)
        if not abs(value) <= LARGEST_REWARD:
            raise RlxRequestError(f"the reward must be finite, got {value}")
        return value

    def _number(self, reward: Any) -> float:
        if isinstance(reward, bool | int):
            return float(reward) if abs(reward) < 1 << 64 else math.inf
        if isinstance(reward, np.ndarray):
            if reward.dtype.kind not in "biuf" or reward.ndim > 1:
                raise RlxRequestError(f"a reward array must be flat and of numbers, got {reward.dtype}{reward.shape}")
            reward = reward.tolist()
            if not isinstance(reward, list):
                return float(reward)
        if not isinstance(reward, list) or not all(isinstance(part, int | float) for part in reward):
            raise RlxRequestError(f"the reward must be a number or a list of numbers, got {type(reward).__name__}")
        try:
            if self._weights is None:
                return float(sum(reward))
            if len(reward) != len(self._weights):
                raise RlxRequestError(f"the reward must have {len(self._weights)} numbers, got {len(reward)}")
            return float(sum(weight * part for weight, part in zip(self._weights, reward, strict=True)))
        except OverflowError:
            return math.inf
