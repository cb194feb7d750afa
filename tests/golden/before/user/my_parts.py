"""Parts of a user's own, on the classes and functions that the pages named."""

import gymnasium
import numpy as np

from surreal.agent import QAgent
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.replay import UniformReplay
from surreal.utils.pytorch import Module


class Corridor(gymnasium.Env):
    def __init__(self, length=6):
        self.length = length
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._see(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action == 1 else -1))
        is_there = self.place == self.length - 1
        return self._see(), float(is_there), is_there, False, {}

    def _see(self):
        return np.eye(self.length, dtype=np.float32)[self.place]


class Bonus(gymnasium.RewardWrapper):
    def __init__(self, env, reward=0.0):
        super().__init__(env)
        self.bonus = reward

    def reward(self, reward):
        return reward + self.bonus


class Net(QFunction):
    """The package's."""


class Shy(QAgent):
    def _act(self, obs, explore, context):
        assert isinstance(self.model, Module)
        return super()._act(obs, explore, context)


class Slow(DQNLearner):
    def learn(self, i, batch):
        return {**super().learn(i, batch), "mine": float(self.updates)}


class Newest(UniformReplay):
    """Draws from the newest half only."""

    def _sample(self, batch_size):
        alive = self.alive
        return self.rng.integers(alive.start + len(alive) // 2, alive.stop, batch_size)
