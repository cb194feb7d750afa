"""Makes the scalar that is learned from out of what a client sends as reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surreal.rlx.pool.ranges import DEFAULT_LIMITS
from surreal.rlx.protocol.errors import RlxRequestError, RlxValueError, brief

_LARGEST_PART = float(np.finfo(np.float32).max)


class RewardReader:
    """Reads a number as it is, and a list of numbers as their weighted sum.

    Args:
        weights: one for each number of a list; None adds lists of any length up.
        largest: magnitude of the largest reward, > 0 (see `ValueLimits`).

    Attributes:
        largest: as given.
    """

    def __init__(self, weights: Sequence[float] | None = None, largest: float = DEFAULT_LIMITS.reward) -> None:
        self._weights = None if weights is None else [float(weight) for weight in weights]
        self.largest = largest

    def read(self, reward: Any) -> float:
        """Give the reward as a number.

        Raises:
            RlxRequestError: it is neither, or has not as many numbers as there are weights.
            RlxValueError: it is not finite, or too large.
        """
        return self.check(reward if type(reward) is float else self._number(reward))

    def check(self, reward: float) -> float:
        """Give the reward back.

        Raises:
            RlxValueError: it is not finite, or too large.
        """
        if not abs(reward) <= self.largest:
            raise _refused(reward, f"finite, and no larger than {self.largest:g}")
        return reward

    def _number(self, reward: Any) -> float:
        if isinstance(reward, bool | int):
            return _finite(reward)
        if isinstance(reward, np.ndarray):
            if reward.dtype.kind not in "biuf" or reward.ndim > 1:
                raise RlxRequestError(f"a reward array must be flat and of numbers, got {reward.dtype}{reward.shape}")
            reward = reward.tolist()
            if not isinstance(reward, list):
                return float(reward)
        if not isinstance(reward, list) or not all(isinstance(part, int | float) for part in reward):
            raise RlxRequestError(f"the reward must be a number or a list of numbers, got {type(reward).__name__}")
        if not reward:
            raise RlxRequestError("the reward is an empty list; send a number, or numbers, or None to begin anew")
        if self._weights is None:
            return sum(map(_finite, reward))
        if len(reward) != len(self._weights):
            raise RlxRequestError(f"the reward must have {len(self._weights)} numbers, got {len(reward)}")
        return sum(weight * _finite(part) for weight, part in zip(self._weights, reward, strict=True))


def _finite(part: float) -> float:
    """Give a part of a reward as a float: parts that cancel each other out must be numbers too."""
    if not abs(part) <= _LARGEST_PART:
        raise _refused(part, "finite, and in the range of a float32, in each of its parts")
    return float(part)


def _refused(value: float, must_be: str) -> RlxValueError:
    number = float("inf") if isinstance(value, int) else value
    return RlxValueError(f"the reward is {brief(value)}; it must be {must_be}", leaf="the reward", value=number)
