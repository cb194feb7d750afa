"""Several dense networks of the same sizes, computed at once: twin critics take one matrix product, not two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm as normalize

from surreal.model.layers.activations import ActivationName, get_activation, inputs_per_unit, read_activation
from surreal.model.layers.kaf import KAF, KafSettings


class EnsembleDense(nn.Module):
    """One dense layer of each member, with torch's usual initial values.

    Args:
        members: how many networks, >= 1.
        num_inputs: of each.
        num_outputs: of each.
        layer_norm: normalise the outputs of each row, then scale and shift them (Ba et al. 2016, arXiv:1607.06450).
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(
        self,
        members: int,
        num_inputs: int,
        num_outputs: int,
        *,
        layer_norm: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(num_inputs) if num_inputs > 0 else 0.0
        self.weight = nn.Parameter(torch.empty(members, num_inputs, num_outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, num_outputs))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self.scale: nn.Parameter | None = None
        if layer_norm:
            self.scale = nn.Parameter(torch.ones(members, 1, num_outputs))
            self.shift = nn.Parameter(torch.zeros(members, 1, num_outputs))

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Compute [members, B, num_outputs] of all members, or of the first, from [members, B, num_inputs] float32."""
        outputs = torch.baddbmm(_first(self.bias, members), features, _first(self.weight, members))
        if self.scale is None:
            return outputs
        outputs = normalize(outputs, outputs.shape[-1:])
        return torch.addcmul(_first(self.shift, members), outputs, _first(self.scale, members))


def _first(parameter: Tensor, members: int | None) -> Tensor:
    return parameter if members is None else parameter[:members]


class EnsembleMLP(nn.Module):
    """Dense layers of each member, with an activation between them.

    Args:
        members: how many networks, >= 1.
        sizes: features of the input, then units of each layer; the last is the output.
        activation: between layers; see `surreal.model.layers.activations`.
        layer_norm: normalise before each activation; see `EnsembleDense`.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(
        self,
        members: int,
        sizes: Sequence[int],
        *,
        activation: ActivationName = "relu",
        layer_norm: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.members = members
        kind = read_activation(activation)
        *hidden, (before, after) = pairwise(sizes)
        self.hidden = nn.ModuleList(
            EnsembleDense(members, inputs, units * inputs_per_unit(kind), layer_norm=layer_norm, generator=generator)
            for inputs, units in hidden
        )
        self._activation = None if isinstance(kind, KafSettings) else get_activation(kind, in_place=True)
        self.learned = nn.ModuleList(KAF(units, kind, members) for _, units in hidden if isinstance(kind, KafSettings))
        self.output = EnsembleDense(members, before, after, generator=generator)

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Compute the outputs of all members, or of the first of them, for the same rows.

        Args:
            features: [B, sizes[0]] float32.
            members: how many; None: all.

        Returns:
            [members, B, sizes[-1]] float32.
        """
        count = self.members if members is None else members
        outputs = features.expand(count, *features.shape)
        for i, layer in enumerate(self.hidden):
            outputs = layer.forward(outputs, members)
            if self._activation is None:
                outputs = self.learned[i].forward(outputs, members)
            else:
                outputs = self._activation(outputs)
        values: Tensor = self.output.forward(outputs, members)
        return values
