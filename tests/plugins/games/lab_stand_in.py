"""A stand-in for the module `deepmind_lab`, with the interface that its documentation describes.

The level is a corridor: MOVE_BACK_FORWARD moves along it, each cell forward pays 1, and its tenth cell ends the
episode, as does the time. The screen is as bright as the cell's number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

INPUTS = [
    ("LOOK_LEFT_RIGHT_PIXELS_PER_FRAME", -512, 512),
    ("LOOK_DOWN_UP_PIXELS_PER_FRAME", -512, 512),
    ("STRAFE_LEFT_RIGHT", -1, 1),
    ("MOVE_BACK_FORWARD", -1, 1),
    ("FIRE", 0, 1),
    ("JUMP", 0, 1),
    ("CROUCH", 0, 1),
]
FRAMES_LEFT = "FRAMES_REMAINING_AT_60"

#: Every instance that was made, and the folder that `set_runfiles_path` was told.
made: list[Lab] = []
runfiles: list[str] = []


def set_runfiles_path(path: str) -> None:
    runfiles.append(path)


class Lab:
    def __init__(
        self, level: str, observations: list[str], config: dict[str, str] | None = None, renderer: str = "software"
    ) -> None:
        self.level, self.renderer, self.config = level, renderer, dict(config or {})
        assert all(isinstance(part, str) for pair in self.config.items() for part in pair)
        self.asked = list(observations)
        self.actions: list[tuple[list[int], int]] = []
        self.seeds: list[int | None] = []
        self.is_closed = False
        self._is_running = False
        made.append(self)

    def action_spec(self) -> list[dict[str, Any]]:
        return [{"name": name, "min": low, "max": high} for name, low, high in INPUTS]

    def observation_spec(self) -> list[dict[str, Any]]:
        height, width = self._size()
        screen = {"name": "RGB_INTERLEAVED", "dtype": np.uint8, "shape": (height, width, 3)}
        left = [{"name": FRAMES_LEFT, "dtype": np.float64, "shape": (1,)}] if "old" not in self.level else []
        return [screen, {"name": "INSTR", "dtype": str, "shape": ()}, *left]

    def reset(self, episode: int = -1, seed: int | None = None) -> None:
        assert seed is None or 0 <= seed < 1 << 31
        self.seeds.append(seed)
        self._frames, self._cell, self._is_running = 0, 0, True

    def step(self, action: Any, num_steps: int = 1) -> float:
        assert self._is_running, "an episode that is over must be reset"
        assert action.dtype == np.intc
        assert all(low <= value <= high for value, (_, low, high) in zip(action, INPUTS, strict=True))
        self.actions.append((action.tolist(), num_steps))
        before = self._cell
        for _ in range(num_steps):
            self._frames += 1
            self._cell += int(action[3])
            if self._cell >= 10 or self._left() <= 0:
                self._is_running = False
                break
        return float(self._cell - before)

    def observations(self) -> dict[str, Any]:
        assert self._is_running, "there are none of an episode that is over"
        screen = np.full((*self._size(), 3), 10 * max(self._cell, 0), np.uint8)
        screen[..., 2] = 0
        every = {"RGB_INTERLEAVED": screen, FRAMES_LEFT: np.array([self._left()])}
        return {name: every[name] for name in self.asked}

    def is_running(self) -> bool:
        return self._is_running

    def num_steps(self) -> int:
        return self._frames

    def close(self) -> None:
        self.is_closed = True

    def _left(self) -> float:
        fps = int(self.config.get("fps", "60"))
        return 60.0 * (int(self.config.get("episodeLengthSeconds", "90")) - self._frames / fps)

    def _size(self) -> tuple[int, int]:
        return int(self.config.get("height", "240")), int(self.config.get("width", "320"))
