"""Dense layers, the initial values of parameters, and the head that gives Q values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from surreal.model.activations import ActivationName, inputs_per_unit, make_activation, read_activation
from surreal.model.norms import NormKind, make_norm

Layer = TypeVar("Layer", bound=nn.Module)


def allocate(layer: Layer) -> Layer:
    """Return a layer that was made with `device="meta"` parameters on the CPU, of any values; returns the layer.

    `to_empty` would do the same, but imports sympy for it: half a second in every process that has a model.
    """
    for name, parameter in list(layer.named_parameters(recurse=False)):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))
    return layer


class Dense(nn.Linear):
    """A dense layer with torch's usual initial values, U(-1/sqrt(inputs), 1/sqrt(inputs)), from a generator.

    The built-in networks call `forward` itself, which finds its tensors without a detour: calling layers as modules,
    and finding their tensors by attribute, costs an agent a third of its forward pass.

    Args:
        generator: draws the initial values; None uses torch's global one.
        has_bias: whether something is added to each output; before a batch norm, it would change nothing.
        is_unit: whether the weights of each output keep the length 1; there is no bias then.
    """

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        generator: torch.Generator | None = None,
        *,
        has_bias: bool = True,
        is_unit: bool = False,
    ) -> None:
        has_bias = has_bias and not is_unit
        super().__init__(num_inputs, num_outputs, bias=has_bias, device="meta")
        allocate(self)
        bound = 1.0 / math.sqrt(num_inputs) if num_inputs > 0 else 0.0
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        if has_bias:
            nn.init.uniform_(self.bias, -bound, bound, generator=generator)
        if is_unit:
            keep_length(self.weight, 1)

    def reset_parameters(self) -> None:
        """Nothing: the constructor draws the initial values, also of a layer without inputs."""

    def forward(self, features: Tensor) -> Tensor:
        """Compute [..., num_outputs] from [..., num_inputs] float32."""
        tensors = self._parameters
        return linear(features, tensors["weight"], tensors["bias"])  # type: ignore[arg-type]


class MLP(nn.Module):
    """Dense layers, with an activation between them and, if wanted, another one after the last.

    Args:
        sizes: features of the input, then units of each layer; one layer at least.
        activation: between layers; see `surreal.model.activations`.
        output_activation: after the last layer.
        norm: normalizes the outputs of each layer before its activation; see `surreal.model.norms`. None: nothing does.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: ActivationName = "relu",
        output_activation: ActivationName = "none",
        generator: torch.Generator | None = None,
        norm: NormKind | None = None,
    ) -> None:
        super().__init__()
        if len(sizes) < 2:
            raise ValueError(f"sizes is {list(sizes)}; it must name the input and at least one layer")
        kinds = [read_activation(activation)] * (len(sizes) - 2) + [read_activation(output_activation)]
        self.layers = nn.ModuleList(
            Dense(before, after * inputs_per_unit(kind), generator)
            for (before, after), kind in zip(pairwise(sizes), kinds, strict=True)
        )
        widths = [layer.out_features for layer in self.layers if isinstance(layer, Dense)]
        norms = [None if norm is None else make_norm(norm, width) for width in widths]
        self.norms = nn.ModuleList(each for each in norms if each is not None)
        activations = [make_activation(kind, units) for kind, units in zip(kinds, sizes[1:], strict=True)]
        self.learned = nn.ModuleList(each for each in activations if isinstance(each, nn.Module))
        # Layers are applied as functions, to the entries that every way of replacing a parameter replaces: calling them
        # would cost an agent a tenth of its forward pass.
        tensors = [layer._parameters for layer in self.layers]
        self._steps = tuple(zip(tensors, norms, activations, strict=True))

    def forward(self, features: Tensor) -> Tensor:
        """Compute [..., sizes[-1]] from [..., sizes[0]] float32."""
        for tensors, norm, activation in self._steps:
            features = linear(features, tensors["weight"], tensors["bias"])  # type: ignore[arg-type]
            if norm is not None:
                features = norm.forward(features)
            if activation is not None:
                features = activation(features)
        return features


class QHead(nn.Module):
    """Values of all discrete actions.

    Args:
        dueling: split the output into the state's value and the actions' advantages, Q = V + A - mean(A)
            (Wang et al. 2016 eq. 9, arXiv:1511.06581).
    """

    def __init__(
        self, num_features: int, num_actions: int, *, dueling: bool = False, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.dueling = dueling
        self.output = Dense(num_features, num_actions + dueling, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Compute [..., num_actions] float32."""
        output: Tensor = self._modules["output"].forward(features)  # type: ignore[union-attr]  # see `Dense`
        return combine_dueling(output) if self.dueling else output


def combine_dueling(output: Tensor) -> Tensor:
    """Compute Q [..., n] from the state's value and the actions' advantages, [..., 1 + n]."""
    value, advantage = output[..., :1], output[..., 1:]
    return value + advantage - advantage.mean(dim=-1, keepdim=True)


_TINY = 1e-12


@torch.no_grad()
def keep_length(parameter: Tensor, axis: int, length: float = 1.0) -> None:
    """Scale a parameter's vectors along an axis to a length, now and after each step of an optimizer."""
    parameter.kept_length = axis, length  # type: ignore[attr-defined]
    restore_length(parameter, axis, length)


def kept_length(parameter: Tensor) -> tuple[int, float] | None:
    """Return what `keep_length` was told of a parameter; None if its length is free."""
    return getattr(parameter, "kept_length", None)


def restore_length(parameter: Tensor, axis: int, length: float) -> None:
    """Scale vectors along an axis to a length; the caller holds `torch.no_grad()`."""
    norm = torch.linalg.vector_norm(parameter, dim=axis, keepdim=True)
    parameter.mul_(length / norm.clamp(min=_TINY))
