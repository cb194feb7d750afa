"""Activations by name, among them kernel activation functions (KAF, arXiv:1707.04035)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional

from surreal.base.ranges import Positive, checked

_RIDGE = 1e-3


@checked
@dataclass(frozen=True)
class KafSettings:
    """The choice of activations.

    Args:
        boundary: largest point of the dictionary; far outside of it activations are 0.
        size: points of the dictionary, or of each of its two axes; more allow finer shapes.
        kernel: rbf: of one number. rbf2d: of two, so a layer computes twice as many as it has units.
        gamma: gamma of the kernel; larger ones are narrower.
    """

    boundary: Positive = 2.0
    size: Annotated[int, Ge(2)] = 20
    kernel: Literal["rbf", "rbf2d"] = "rbf"
    gamma: Positive = 1.0

    def __post_init__(self) -> None:
        if type(self.size) is not int:
            raise ValueError(f"size is {self.size!r}; it must be an integer >= 2")

    @property
    def inputs_per_unit(self) -> int:
        """Numbers that make one unit's activation."""
        return 2 if self.kernel == "rbf2d" else 1


class KAF(nn.Module):
    """The activations of one layer.

    Args:
        units: units of the layer.
        settings: which activations these are.
        members: networks that are computed at once, whose layers these are, >= 1; None: one, and features have no axis
            of members.
    """

    dictionary: Tensor

    def __init__(self, units: int, settings: KafSettings, members: int | None = None) -> None:
        super().__init__()
        self.settings = settings
        points = torch.linspace(-settings.boundary, settings.boundary, settings.size, dtype=torch.float64)
        self.register_buffer("dictionary", points.float(), persistent=False)
        if settings.kernel == "rbf":
            start = _fit(points[:, None], torch.tanh(points), settings.gamma)
        else:
            grid = torch.cartesian_prod(points, points)
            start = _fit(grid, torch.tanh(grid.sum(1)), settings.gamma).view(settings.size, settings.size)
        leading = (units,) if members is None else (members, 1, units)
        self.alpha = nn.Parameter(start.float().expand(*leading, *start.shape).clone())

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Compute [..., units] from [..., units]; rbf2d: from [..., 2 units], all first numbers before all second.

        Args:
            features: float32; of several networks [members, N, units], or the same of the first of them.
            members: number of networks; None: all.
        """
        alpha = self.alpha if members is None else self.alpha[:members]
        kernel = torch.exp(-self.settings.gamma * (features.unsqueeze(-1) - self.dictionary).square())
        if self.settings.kernel == "rbf":
            return (kernel * alpha).sum(-1)
        first, second = kernel.chunk(2, dim=-2)
        # The sum over one axis of the dictionary is a matrix product for each unit.
        mixed = torch.einsum("...ui,...uij->...uj", first, alpha)
        return (mixed * second).sum(-1)


def _fit(points: Tensor, target: Tensor, gamma: float) -> Tensor:
    """Coefficients [D] with which the kernels at `points` [D, axes] come nearest to `target` [D] there."""
    kernel = torch.exp(-gamma * (points[:, None] - points[None]).square().sum(-1))
    alpha: Tensor = torch.linalg.solve(kernel + _RIDGE * torch.eye(len(points), dtype=points.dtype), target)
    return alpha


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
    "leaky_relu": functional.leaky_relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "mish": functional.mish,
    "selu": functional.selu,
    "softsign": functional.softsign,
    "hardtanh": functional.hardtanh,
}

#: The same, written over what they are given: neither their gradients nor those of the layer before need it. It saves
#: small networks calls, and large ones memory.
_IN_PLACE: Mapping[str, Activation] = {
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
    "relu": torch.relu_,
    "relu6": partial(functional.relu6, inplace=True),
    "elu": partial(functional.elu, inplace=True),
    "leaky_relu": partial(functional.leaky_relu, inplace=True),
    "silu": partial(functional.silu, inplace=True),
}


def get_activation(name: str, *, in_place: bool = False) -> Activation:
    """Look a key of `ACTIVATIONS` up; `in_place`: it may write over its input, the output of a dense or convolutional
    layer.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in ACTIVATIONS:
        raise ValueError(_unknown(name))
    return _IN_PLACE.get(name, ACTIVATIONS[name]) if in_place else ACTIVATIONS[name]


def read_activation(activation: ActivationName) -> str | KafSettings:
    """Read a dense layer's activation, a name or settings of kernels; raises `ValueError` if it is not possible."""
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
        except ValueError as error:
            raise ValueError(f"activation.{error}") from error
    if name not in ACTIVATIONS:
        raise ValueError(_unknown(str(name), "kaf"))
    if settings:
        raise ValueError(f"activation is {activation!r}; {name} has no settings")
    return name


def _unknown(name: str, *more: str) -> str:
    near = difflib.get_close_matches(name.lower(), [*ACTIVATIONS, *more], n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join([*ACTIVATIONS, *more])}"
    return f"activation {name!r} is unknown; {hint}"


def inputs_per_unit(activation: str | KafSettings) -> int:
    """Count the inputs of one unit's activation, which the layer before it computes for each unit."""
    return activation.inputs_per_unit if isinstance(activation, KafSettings) else 1


def make_activation(activation: str | KafSettings, units: int) -> Activation | KAF | None:
    """Make the activation of a dense layer, which may write over the layer's output; None for none at all."""
    if isinstance(activation, KafSettings):
        return KAF(units, activation)
    return None if activation == "none" else get_activation(activation, in_place=True)
