"""Learners: they improve a model with batches from a replay.

The main path: `base.Learner.optimize` calls `learn` of a subclass such as `dqn.DQNLearner`. `gradients.GradientLearner`
has what all learners share that step down a loss. Losses and returns are pure functions.
"""

from surreal.learner.base import Learner, ReplayView
from surreal.learner.dqn import DQNLearner
from surreal.learner.gradients import GradientLearner, Gradients
from surreal.learner.r2d2 import R2D2Learner

__all__ = ["DQNLearner", "GradientLearner", "Gradients", "Learner", "R2D2Learner", "ReplayView"]
