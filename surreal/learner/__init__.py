"""Learners: they improve a model with batches from a replay.

The main path: `base.Learner.optimize` calls `learn` of a subclass such as `dqn.DQNLearner`.
"""

from surreal.learner.base import Learner
from surreal.learner.dqn import DQNLearner

__all__ = ["DQNLearner", "Learner"]
