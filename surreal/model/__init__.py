"""Networks: they compute, and know nothing of exploration, losses or Redis.

A model is composed: a torso (`torso`, `conv`, `mlp`) from observations to features, perhaps a recurrent core (`core`),
and heads (`heads`, `distributions`). `base` has what all models share, `policy` the actor-critic.
Imported by agents and learners.
"""

from surreal.model.activations import ACTIVATIONS, get_activation
from surreal.model.base import LazyModel, Model
from surreal.model.composed import ComposedModel
from surreal.model.conv import CONVOLUTIONS, Convolution, ConvTorso
from surreal.model.core import LSTMCore
from surreal.model.distributions import Categorical, Distribution, Normal
from surreal.model.mlp import MLP
from surreal.model.policy.actor_critic import ActorCritic, PolicyValue
from surreal.model.policy.multi_discrete import Bernoulli, MultiCategorical
from surreal.model.q_function import ConvQFunction, QFunction
from surreal.model.torso import Torso, flatten_obs

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "MLP",
    "ActorCritic",
    "Bernoulli",
    "Categorical",
    "ComposedModel",
    "ConvQFunction",
    "ConvTorso",
    "Convolution",
    "Distribution",
    "LSTMCore",
    "LazyModel",
    "Model",
    "MultiCategorical",
    "Normal",
    "PolicyValue",
    "QFunction",
    "Torso",
    "flatten_obs",
    "get_activation",
]
