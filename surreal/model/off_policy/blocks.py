"""`ResidualBlocks`: hidden layers whose outputs are added to their inputs, for actors and critics.

With width d, and each block 4 d wide inside:

    simba       x = dense(x); of each block x += dense(act(dense(layer norm(x)))); then layer norm
                (Lee et al. 2024, arXiv:2410.09754)
    flashsac    x = dense(batch norm(x)); of each block x += act(batch norm(dense(act(batch norm(dense(x))))));
                then RMS norm. Dense layers have no bias. After each step of the optimizer, the weights of each unit
                have length 1, and the scales of each norm length sqrt(units) (FlashSAC, arXiv:2604.04539).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from surreal.model.activations import get_activation
from surreal.model.mlp import Dense, keep_length
from surreal.model.norms import BatchNormSettings, Norm, NormKind, make_norm, of_first

BlockKind = Literal["simba", "flashsac"]
#: Units inside of a block, for each unit of its output.
_EXPANSION = 4


def check_blocks(blocks: BlockKind | None, hiddens: Sequence[int], activation: Any, norm: NormKind | None) -> None:
    """Refuse settings that residual blocks cannot have; the error names the setting."""
    if blocks is None:
        return
    if not hiddens or len(set(hiddens)) > 1:
        raise ValueError(f"hiddens is {list(hiddens)}; with blocks, it must name blocks of one width, such as [64, 64]")
    if not isinstance(activation, str):
        raise ValueError("activation is kaf, which blocks cannot have; use relu")
    if norm is not None and (blocks == "simba" or not isinstance(norm, BatchNormSettings)):
        raise ValueError(
            f"norm is set, but blocks is {blocks}, which has its own; only flashsac takes settings of batch"
        )


class ResidualBlocks(nn.Module):
    """The hidden layers of one network, or of several that are computed together.

    Args:
        hiddens: the width, once for each block.
        activation: a name in `ACTIVATIONS`.
        norm: settings of flashsac's batch norms; None: the defaults.
        members: networks that are computed at once, features [members, B, num_inputs]; None: one, [..., num_inputs].
    """

    def __init__(
        self,
        kind: BlockKind,
        num_inputs: int,
        hiddens: Sequence[int],
        activation: str,
        norm: NormKind | None,
        members: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.kind = kind
        self._members, self._generator = members, generator
        self._activation = get_activation(activation, in_place=True)
        self.act_name = activation
        batch = BatchNormSettings() if norm is None else norm
        width, is_flash = hiddens[0], kind == "flashsac"
        self.first_norm = self._norm(batch, num_inputs) if is_flash else None
        self.first = self._dense(num_inputs, width)
        self.up = nn.ModuleList(self._dense(width, _EXPANSION * width) for _ in hiddens)
        self.down = nn.ModuleList(self._dense(_EXPANSION * width, width) for _ in hiddens)
        inner: list[tuple[NormKind, int]] = (
            [(batch, _EXPANSION * width), (batch, width)] if is_flash else [("layer", width)]
        )
        self.norms = nn.ModuleList(self._norm(*each) for _ in hiddens for each in inner)
        self.last_norm = self._norm("rms" if is_flash else "layer", width)
        self._generator = None

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Compute [..., width]; `members` is how many networks of the first these are, None: all."""
        of = () if self._members is None else (members,)
        if self.first_norm is not None:
            features = self.first_norm.forward(features, members)
        features = self.first.forward(features, *of)
        for i, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            if self.kind == "simba":
                inner = self._activation(up.forward(self.norms[i].forward(features, members), *of))
                features = features + down.forward(inner, *of)
            else:
                inner = self._activation(self.norms[2 * i].forward(up.forward(features, *of), members))
                outer = self._activation(self.norms[2 * i + 1].forward(down.forward(inner, *of), members))
                features = features + outer
        outputs: Tensor = self.last_norm.forward(features, members)
        return outputs

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.act_name}"

    def _dense(self, num_inputs: int, num_outputs: int) -> Dense | EnsembleDense:
        options: dict[str, Any] = {"generator": self._generator, "is_unit": self.kind == "flashsac"}
        if self._members is None:
            return Dense(num_inputs, num_outputs, **options)
        return EnsembleDense(self._members, num_inputs, num_outputs, **options)

    def _norm(self, kind: NormKind, units: int) -> Norm:
        norm = make_norm(kind, units, self._members)
        if self.kind == "flashsac":
            keep_length(norm.scale, -1, math.sqrt(units))
        return norm


class EnsembleDense(nn.Module):
    """One dense layer of each member, with torch's usual initial values.

    Args:
        members: how many networks, >= 1.
        norm: normalizes the outputs; see `surreal.model.norms`. None: nothing does.
        is_unit: whether the weights of each output keep the length 1; there is no bias then.
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
