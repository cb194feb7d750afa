"""`EnsembleDense`: one dense layer of several networks with the same shape, computed together."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from surreal.model.lengths import keep_length
from surreal.model.norms import BatchNormSettings, NormKind, make_norm, of_first


class EnsembleDense(nn.Module):
    """One dense layer of each member, with torch's usual initial values.

    Args:
        members: how many networks, >= 1.
        num_inputs: number of inputs of each.
        num_outputs: number of outputs of each.
        norm: normalizes the outputs; see `surreal.model.norms`. None: nothing does.
        is_unit: whether the weights of each output keep the length 1; there is no bias then.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(
        self,
        members: int,
        num_inputs: int,
        num_outputs: int,
        *,
        norm: NormKind | None = None,
        is_unit: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(num_inputs) if num_inputs > 0 else 0.0
        self.weight = nn.Parameter(torch.empty(members, num_inputs, num_outputs))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        self.bias: nn.Parameter | None = None
        if is_unit:
            keep_length(self.weight, 1)
        elif not isinstance(norm, BatchNormSettings):  # before a batch norm, it would change nothing
            self.bias = nn.Parameter(torch.empty(members, 1, num_outputs))
            nn.init.uniform_(self.bias, -bound, bound, generator=generator)
        self.norm = None if norm is None else make_norm(norm, num_outputs, members)

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Compute [members, B, num_outputs] of all members, or of the first, from [members, B, num_inputs] float32."""
        weight = of_first(self.weight, members)
        if self.bias is None:
            outputs = torch.bmm(features, weight)
        else:
            outputs = torch.baddbmm(of_first(self.bias, members), features, weight)
        return outputs if self.norm is None else self.norm.forward(outputs, members)
