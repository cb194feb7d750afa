"""An environment for runs in which processes are killed: each observation says which process made it, and when.

The k-th observation of a process's environment e is (process, e, k) / 2^24, so that a lost or repeated step would show;
its episodes have 7 + e steps.
"""

import itertools
import os
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

PROCESS = int.from_bytes(os.urandom(3), "big")
NUMBERS = itertools.count()


class Numbered(gymnasium.Env[NDArray[np.float32], int]):
    """See the module."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.number, self.count = next(NUMBERS), -1

    def _obs(self) -> NDArray[np.float32]:
        self.count += 1
        return (np.array([PROCESS, self.number, self.count]) / 2**24).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        self.left = 7 + self.number
        return self._obs(), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._obs(), float(action), self.left == 0, False, {}


gymnasium.register("Numbered-v0", Numbered)
