"""`MLP`: dense layers, each followed by the activation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from surreal.model.activations import get_activation
from surreal.model.allocate import allocate


def make_linear(num_inputs: int, num_outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """Create a dense layer with torch's usual initial values, U(-1/sqrt(inputs), 1/sqrt(inputs)), from a generator."""
    layer = allocate(nn.Linear(num_inputs, num_outputs, device="meta"))
    bound = 1.0 / math.sqrt(num_inputs) if num_inputs > 0 else 0.0
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer


class MLP(nn.Module):
    """Dense layers, with an activation between them and, if wanted, another one after the last.

    Args:
        sizes: features of the input, then units of each layer; one layer at least.
        activation: between layers, by name, see `surreal.model.activations`.
        output_activation: after the last layer.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: str = "relu",
        output_activation: str = "none",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if len(sizes) < 2:
            raise ValueError(f"sizes is {list(sizes)}; it must name the input and at least one layer")
        self.layers = nn.ModuleList(make_linear(before, after, generator) for before, after in pairwise(sizes))
        self._hidden_activation = get_activation(activation)
        self._output_activation = None if output_activation == "none" else get_activation(output_activation)
        *hidden, last = self.layers
        # Calling layers as modules, and finding their tensors by attribute, costs an agent a third of its forward pass:
        # so they are applied as functions, to the entries that every way of replacing a parameter replaces.
        self._hidden_tensors: tuple[dict[str, Any], ...] = tuple(layer._parameters for layer in hidden)
        self._last_tensors: dict[str, Any] = last._parameters

    def forward(self, features: Tensor) -> Tensor:
        """Compute [B, sizes[-1]] from [B, sizes[0]] float32."""
        activation = self._hidden_activation
        for tensors in self._hidden_tensors:
            features = activation(linear(features, tensors["weight"], tensors["bias"]))
        tensors = self._last_tensors
        output = linear(features, tensors["weight"], tensors["bias"])
        return output if self._output_activation is None else self._output_activation(output)
