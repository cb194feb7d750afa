"""Networks: they compute, and know nothing of exploration, losses or Redis.

A model is composed: a torso (`torso`, `conv`, `mlp`) from observations to features, perhaps a recurrent core (`core`),
and heads (`heads`, `distributions`). `base` has what all models share. Imported by agents and learners.
"""

from surreal.model.activations import ACTIVATIONS, get_activation
from surreal.model.actor_critic import ActorCritic, PolicyValue
from surreal.model.base import LazyModel, Model
from surreal.model.composed import ComposedModel
from surreal.model.conv import CONVOLUTIONS, ConvTorso
from surreal.model.conv_layers import Convolution, ResidualStage
from surreal.model.core import Core, DilatedLSTMCore, LSTMCore
from surreal.model.distributions import Categorical, Distribution, Normal
from surreal.model.kaf import KAF, KafSettings
from surreal.model.mlp import MLP
from surreal.model.q_function import ConvQFunction, QFunction
from surreal.model.torso import Torso, flatten_obs

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "KAF",
    "MLP",
    "ActorCritic",
    "Categorical",
    "ComposedModel",
    "ConvQFunction",
    "ConvTorso",
    "Convolution",
    "Core",
    "DilatedLSTMCore",
    "Distribution",
    "KafSettings",
    "LSTMCore",
    "LazyModel",
    "Model",
    "Normal",
    "PolicyValue",
    "QFunction",
    "ResidualStage",
    "Torso",
    "flatten_obs",
    "get_activation",
]
