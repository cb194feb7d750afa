"""Networks: they compute, and know nothing of exploration, losses or Redis.

A model is composed: a torso (`torso`) from observations to features, perhaps a recurrent core (`recurrent`), and heads
(`heads`, `distributions`). `base` has what all models share, `actor_critic` the model for on-policy learners, and
`off_policy` the models for the others. Imported by agents and learners.
"""

from surreal.model.activations import ACTIVATIONS, KAF, KafSettings, get_activation
from surreal.model.actor_critic import ActorCritic, PolicyValue
from surreal.model.base import ComposedModel, LazyModel, Model
from surreal.model.conv import CONVOLUTIONS, Convolution, ConvTorso, ResidualStage
from surreal.model.distributions import Bernoulli, Categorical, Distribution, MultiCategorical, Normal
from surreal.model.mlp import MLP
from surreal.model.off_policy.action_range import SquashedNormal
from surreal.model.off_policy.actor_critics import (
    DeterministicActorCritic,
    DiscreteSoftActorCritic,
    ImplicitActorCritic,
    OffPolicyActorCritic,
    SoftActorCritic,
    SoftModel,
)
from surreal.model.off_policy.q_function import (
    ConvQFunction,
    NoisyQFunction,
    NoisyQuantileQFunction,
    QFunction,
    QuantileQFunction,
)
from surreal.model.recurrent import Core, DilatedLSTMCore, LSTMCore
from surreal.model.torso import Torso, flatten_obs

__all__ = [
    "ACTIVATIONS", "CONVOLUTIONS", "KAF", "MLP", "ActorCritic", "Bernoulli", "Categorical", "ComposedModel",
    "ConvQFunction", "ConvTorso", "Convolution", "Core", "DeterministicActorCritic", "DilatedLSTMCore",
    "DiscreteSoftActorCritic", "Distribution", "ImplicitActorCritic", "KafSettings", "LSTMCore", "LazyModel", "Model",
    "MultiCategorical", "NoisyQFunction", "NoisyQuantileQFunction", "Normal", "OffPolicyActorCritic", "PolicyValue",
    "QFunction", "QuantileQFunction", "ResidualStage", "SoftActorCritic", "SoftModel", "SquashedNormal", "Torso",
    "flatten_obs", "get_activation",
]  # fmt: skip
