"""Networks. They know nothing of exploration, losses or Redis."""

from surreal.model.activations import ACTIVATIONS, get_activation
from surreal.model.base import Model
from surreal.model.conv import CONVOLUTIONS, Convolution, ConvTorso
from surreal.model.conv_q_function import ConvQFunction
from surreal.model.inputs import flatten_obs
from surreal.model.mlp import MLP
from surreal.model.q_function import QFunction

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "MLP",
    "ConvQFunction",
    "ConvTorso",
    "Convolution",
    "Model",
    "QFunction",
    "flatten_obs",
    "get_activation",
]
