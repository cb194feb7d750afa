"""Learners: they improve a model with batches from a replay.

The main path: `base.Learner.optimize` calls `learn` of a subclass such as `off_policy.dqn.DQNLearner`.
`gradients.GradientLearner` has what all learners share that step down a loss. `off_policy` has the learners from a
replay, `on_policy` those of policies from fresh trajectories. Losses and returns are pure functions.
"""

from surreal.base.contracts import ReplayView
from surreal.base.types import Gradients
from surreal.learner.base import Learner
from surreal.learner.gradients import GradientLearner, one_graph
from surreal.learner.off_policy.bc import BCLearner
from surreal.learner.off_policy.cql import CQLLearner
from surreal.learner.off_policy.ddpg import DDPGLearner
from surreal.learner.off_policy.dqn import DQNLearner
from surreal.learner.off_policy.iql import IQLLearner
from surreal.learner.off_policy.quantile_dqn import QuantileDQNLearner
from surreal.learner.off_policy.r2d2 import R2D2Learner
from surreal.learner.off_policy.sac import SACLearner
from surreal.learner.off_policy.td3bc import TD3BCLearner
from surreal.learner.on_policy.a2c import A2CLearner
from surreal.learner.on_policy.appo import APPOLearner
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.ipg import IPGLearner
from surreal.learner.on_policy.policy_gradient import PolicyGradientLearner
from surreal.learner.on_policy.ppo import PPOLearner
from surreal.learner.on_policy.pqn import PQNLearner
from surreal.learner.on_policy.trpo import TRPOLearner
from surreal.learner.on_policy.vtrace import VTraceLearner
from surreal.learner.remote import RemoteLearner

__all__ = [
    "A2CLearner", "APPOLearner", "ActorCriticLearner", "BCLearner", "CQLLearner", "DDPGLearner", "DQNLearner",
    "GradientLearner", "Gradients", "IPGLearner", "IQLLearner", "Learner", "PPOLearner", "PQNLearner",
    "PolicyGradientLearner", "QuantileDQNLearner", "R2D2Learner", "RemoteLearner", "ReplayView", "SACLearner",
    "TD3BCLearner", "TRPOLearner", "VTraceLearner", "one_graph",
]  # fmt: skip
