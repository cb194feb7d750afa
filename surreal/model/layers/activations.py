"""Activation functions by the names that configurations use, and those that have parameters of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from surreal.model.layers.kaf import KAF, KafSettings

Activation = Callable[[Tensor], Tensor]

#: How a configuration names one: `relu`, `kaf`, or `{type: kaf, boundary, size, kernel, gamma}`.
ActivationName = str | Mapping[str, Any]


def _identity(x: Tensor) -> Tensor:
    return x


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


ACTIVATIONS: Mapping[str, Activation] = {
    "none": _identity,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "relu6": functional.relu6,
    "elu": functional.elu,
    "softmax": _softmax,
    "softplus": functional.softplus,
}

#: The same, written over what they are given: neither their gradients nor those of the layer before need it. It saves
#: small networks calls, and large ones memory.
_IN_PLACE: Mapping[str, Activation] = {
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "relu6": partial(functional.relu6, inplace=True),
    "elu": partial(functional.elu, inplace=True),
}


def get_activation(name: str, *, in_place: bool = False) -> Activation:
    """Look an activation up.

    Args:
        name: a key of `ACTIVATIONS`.
        in_place: it may write over its input, which is the output of a dense or convolutional layer.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is unknown; use one of {', '.join(ACTIVATIONS)}")
    return _IN_PLACE.get(name, ACTIVATIONS[name]) if in_place else ACTIVATIONS[name]


def read_activation(activation: ActivationName) -> str | KafSettings:
    """Read how a dense layer's activation is named.

    Returns:
        A name in `ACTIVATIONS`, or the settings of kernel activation functions.

    Raises:
        ValueError: there is none of this name, or a setting of it is not possible.
    """
    if isinstance(activation, str):
        name, settings = activation, dict[str, Any]()
    else:
        settings = dict(activation)
        name = settings.pop("type", None)
    if name == "kaf":
        try:
            return KafSettings(**settings)
        except TypeError as error:
            raise ValueError(f"activation is {activation!r}; kaf has boundary, size, kernel and gamma") from error
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is unknown; use one of {', '.join(ACTIVATIONS)}, kaf")
    if settings:
        raise ValueError(f"activation is {activation!r}; {name} has no settings")
    return name


def inputs_per_unit(activation: str | KafSettings) -> int:
    """Count the numbers that make one unit's activation: what the layer before it has to compute for each unit."""
    return activation.inputs_per_unit if isinstance(activation, KafSettings) else 1


def make_activation(activation: str | KafSettings, units: int) -> Activation | KAF | None:
    """Make the activation of a dense layer, which may write over the layer's output; None for none at all."""
    if isinstance(activation, KafSettings):
        return KAF(units, activation)
    return None if activation == "none" else get_activation(activation, in_place=True)
