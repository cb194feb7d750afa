"""Learners: they improve a model with batches from a replay.

The main path: `base.Learner.optimize` calls `learn` of a subclass such as `off_policy.dqn.DQNLearner`.
`gradients.GradientLearner` has what all learners share that step down a loss; `off_policy` has those that learn from a
replay. Losses and returns are pure functions.
"""

from surreal.learner.base import Learner, ReplayView
from surreal.learner.gradients import GradientLearner, Gradients
from surreal.learner.off_policy.ddpg import DDPGLearner
from surreal.learner.off_policy.dqn import DQNLearner
from surreal.learner.off_policy.quantile_dqn import QuantileDQNLearner
from surreal.learner.off_policy.sac import SACLearner

__all__ = [
    "DDPGLearner",
    "DQNLearner",
    "GradientLearner",
    "Gradients",
    "Learner",
    "QuantileDQNLearner",
    "ReplayView",
    "SACLearner",
]
