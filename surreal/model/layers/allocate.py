"""Memory for the parameters of a layer that was made without any: its own random initial values are not drawn."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


def allocate(layer: Layer) -> Layer:
    """Give a layer that was made with `device="meta"` parameters on the CPU, of any values; returns the layer.

    `to_empty` would do the same, but imports sympy for it: half a second in every process that has a model.
    """
    for name, parameter in list(layer.named_parameters(recurse=False)):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))
    return layer
