"""Networks: they compute, and know nothing of exploration, losses or Redis.

A model is composed: a torso (`torso`, `conv`, `mlp`) from observations to features, perhaps a recurrent core (`core`),
and heads (`heads`, `distributions`). `base` has what all models share, `off_policy` the models that learn off-policy.
Imported by agents and learners.
"""

from surreal.model.activations import ACTIVATIONS, get_activation
from surreal.model.actor_critic import ActorCritic, PolicyValue
from surreal.model.base import LazyModel, Model
from surreal.model.composed import ComposedModel
from surreal.model.conv import CONVOLUTIONS, Convolution, ConvTorso
from surreal.model.core import LSTMCore
from surreal.model.distributions import Categorical, Distribution, Normal
from surreal.model.mlp import MLP
from surreal.model.off_policy.actor_critics import DeterministicActorCritic, OffPolicyActorCritic
from surreal.model.off_policy.noisy import NoisyQFunction
from surreal.model.off_policy.q_function import ConvQFunction, QFunction
from surreal.model.off_policy.quantiles import QuantileQFunction
from surreal.model.off_policy.soft_actor_critics import DiscreteSoftActorCritic, SoftActorCritic, SoftModel
from surreal.model.off_policy.squashed_normal import SquashedNormal
from surreal.model.torso import Torso, flatten_obs

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "MLP",
    "ActorCritic",
    "Categorical",
    "ComposedModel",
    "ConvQFunction",
    "ConvTorso",
    "Convolution",
    "DeterministicActorCritic",
    "DiscreteSoftActorCritic",
    "Distribution",
    "LSTMCore",
    "LazyModel",
    "Model",
    "NoisyQFunction",
    "Normal",
    "OffPolicyActorCritic",
    "PolicyValue",
    "QFunction",
    "QuantileQFunction",
    "SoftActorCritic",
    "SoftModel",
    "SquashedNormal",
    "Torso",
    "flatten_obs",
    "get_activation",
]
