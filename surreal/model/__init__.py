"""Networks: they compute, and know nothing of exploration, losses or Redis.

A model is composed: a torso (`torso`) from observations to features, perhaps a recurrent core, and heads (`heads`,
`distributions`), all of `layers`. `base` has what all models share, `off_policy` the models that learn off-policy,
`policy` the actor-critic. Imported by agents and learners.
"""

from surreal.model.base import LazyModel, Model
from surreal.model.composed import ComposedModel
from surreal.model.distributions import Categorical, Distribution, Normal
from surreal.model.layers.activations import ACTIVATIONS, get_activation
from surreal.model.layers.conv import CONVOLUTIONS, ConvTorso
from surreal.model.layers.conv_layers import Convolution, ResidualStage
from surreal.model.layers.kaf import KAF, KafSettings
from surreal.model.layers.mlp import MLP
from surreal.model.layers.recurrent import Core, DilatedLSTMCore, LSTMCore
from surreal.model.off_policy.actor_critics import DeterministicActorCritic, OffPolicyActorCritic
from surreal.model.off_policy.noisy import NoisyQFunction
from surreal.model.off_policy.q_function import ConvQFunction, QFunction
from surreal.model.off_policy.quantiles import NoisyQuantileQFunction, QuantileQFunction
from surreal.model.off_policy.soft_actor_critics import DiscreteSoftActorCritic, SoftActorCritic, SoftModel
from surreal.model.off_policy.squashed_normal import SquashedNormal
from surreal.model.policy.actor_critic import ActorCritic, PolicyValue
from surreal.model.policy.multi_discrete import Bernoulli, MultiCategorical
from surreal.model.torso import Torso, flatten_obs

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "KAF",
    "MLP",
    "ActorCritic",
    "Bernoulli",
    "Categorical",
    "ComposedModel",
    "ConvQFunction",
    "ConvTorso",
    "Convolution",
    "Core",
    "DeterministicActorCritic",
    "DilatedLSTMCore",
    "DiscreteSoftActorCritic",
    "Distribution",
    "KafSettings",
    "LSTMCore",
    "LazyModel",
    "Model",
    "MultiCategorical",
    "NoisyQFunction",
    "NoisyQuantileQFunction",
    "Normal",
    "OffPolicyActorCritic",
    "PolicyValue",
    "QFunction",
    "QuantileQFunction",
    "ResidualStage",
    "SoftActorCritic",
    "SoftModel",
    "SquashedNormal",
    "Torso",
    "flatten_obs",
    "get_activation",
]
