"""Counts that survive the death of their process, and the two environments of the kill test.

All peers import this file in their own virtual environments, so it needs only NumPy and Gymnasium. A count is eight
bytes of a mapped file, `KIND-PID` in the folder `KILL_TEST`: the kernel keeps what was written when the process is
killed.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

#: Environment variable with the folder of the counts.
FOLDER = "KILL_TEST"
#: Environment variable with the seed of the program.
SEED = "KILL_TEST_SEED"
_SIZE = 84


def seed() -> int:
    """Return the seed of this run."""
    return int(os.environ.get(SEED, "1"))


class Tally:
    """One count of this process.

    Args:
        kind: `steps`, `episodes`, `returns`, `updates`: what this process did. `counted`, `learned`, `stored`: the env
            steps, updates and stored env steps that the trainer itself believes there are.
    """

    def __init__(self, kind: str) -> None:
        path = Path(os.environ[FOLDER]) / f"{kind}-{os.getpid()}"
        with path.open("a+b") as file:
            if not file.tell():
                file.write(bytes(8))
                file.flush()
            self._map = mmap.mmap(file.fileno(), 8)

    def add(self, amount: int) -> None:
        self.set(struct.unpack_from("<q", self._map)[0] + amount)

    def set(self, value: int) -> None:
        struct.pack_into("<q", self._map, 0, int(value))


class CountedCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose steps and returns are counted by the process that steps it.

    Args:
        frames: show the state as one 84 x 84 image (uint8) instead of four numbers.
        keywords: further arguments that a peer passes; ignored.
    """

    def __init__(self, frames: bool = False, **keywords: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._frames = frames
        self._counts = {kind: Tally(kind) for kind in ("steps", "episodes", "returns")}
        self._return = 0.0
        if frames:
            self.observation_space = gymnasium.spaces.Box(0, 255, (1, _SIZE, _SIZE), np.uint8)

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        self._return = 0.0
        state, info = self.env.reset(**keywords)
        return self._show(state), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = self.env.step(action)
        self._counts["steps"].add(1)
        self._return += float(reward)
        if terminated or truncated:
            self._counts["episodes"].add(1)
            self._counts["returns"].add(round(self._return))
        return self._show(state), float(reward), terminated, truncated, info

    def _show(self, state: Any) -> Any:
        if not self._frames:
            return state
        image = np.zeros((1, _SIZE, _SIZE), np.uint8)
        # A row for each number: how far the bar reaches shows how large it is.
        for row, (value, scale) in enumerate(zip(state, (2.4, 3.0, 0.21, 3.0), strict=True)):
            reach = int(np.clip(0.5 + value / scale / 2, 0.0, 1.0) * (_SIZE - 1))
            image[0, row * 21 : (row + 1) * 21, : reach + 1] = 255
        return image


gymnasium.register("KillTestCartPole-v0", entry_point=CountedCartPole)
gymnasium.register("KillTestFrames-v0", entry_point=CountedCartPole, kwargs={"frames": True})
