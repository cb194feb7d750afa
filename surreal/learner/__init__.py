"""Learners: they improve a model with batches from a replay.

The main path: `base.Learner.optimize` calls `learn` of a subclass such as `dqn.DQNLearner`. `gradients.GradientLearner`
has what all learners share that step down a loss. Losses and returns are pure functions. `on_policy` has the
learners of policies from fresh trajectories.
"""

from surreal.learner.base import Learner, ReplayView
from surreal.learner.dqn import DQNLearner
from surreal.learner.gradients import GradientLearner, Gradients
from surreal.learner.on_policy.a2c import A2CLearner
from surreal.learner.on_policy.policy_gradient import PolicyGradientLearner
from surreal.learner.on_policy.ppo import PPOLearner
from surreal.learner.on_policy.trpo import TRPOLearner
from surreal.learner.on_policy.vtrace import VTraceLearner

__all__ = [
    "A2CLearner",
    "DQNLearner",
    "GradientLearner",
    "Gradients",
    "Learner",
    "PPOLearner",
    "PolicyGradientLearner",
    "ReplayView",
    "TRPOLearner",
    "VTraceLearner",
]
