"""A corridor: walk to its right end."""

import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    def __init__(self, length=6):
        self.length = length
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self._see(), {}

    def step(self, action):
        self.steps += 1
        self.place = max(0, self.place + (1 if action == 1 else -1))
        is_there = self.place == self.length - 1
        return self._see(), float(is_there), is_there, self.steps == 30, {}

    def _see(self):
        return np.eye(self.length, dtype=np.float32)[self.place]
