"""Activation functions by the names that configurations use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

Activation = Callable[[Tensor], Tensor]


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


def get_activation(name: str) -> Activation:
    """Look an activation up.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is unknown; use one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
