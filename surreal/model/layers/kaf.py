"""Kernel activation functions: activations that are learned, one for each unit (Scardapane et al. 2017).

Section 3 of arXiv:1707.04035. With dictionary points d_i, evenly spaced on [-boundary, boundary], a unit's activation
is

    g(s) = sum_i alpha_i exp(-gamma (s - d_i)^2)                                   kernel rbf
    g(s, t) = sum_ij alpha_ij exp(-gamma ((s - d_i)^2 + (t - d_j)^2))              kernel rbf2d

Only the mixing coefficients alpha are learned. They begin where g is nearest to tanh at the dictionary's points, by
ridge regression (eq. 13); for rbf2d, to the tanh of s + t.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

_RIDGE = 1e-3


@dataclass(frozen=True)
class KafSettings:
    """Which activations these are.

    Args:
        boundary: largest point of the dictionary, > 0; far outside of it activations are 0.
        size: points of the dictionary, or of each of its two axes, >= 2; more allow finer shapes.
        kernel: rbf: of one number. rbf2d: of two, so a layer computes twice as many as it has units.
        gamma: of the kernel, > 0; larger ones are narrower.
    """

    boundary: float = 2.0
    size: int = 20
    kernel: str = "rbf"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not self.boundary > 0.0 or not self.gamma > 0.0:
            raise ValueError(f"boundary and gamma of kaf are {self.boundary} and {self.gamma}; they must be > 0")
        if type(self.size) is not int or self.size < 2:
            raise ValueError(f"size of kaf is {self.size!r}; it must be an integer >= 2")
        if self.kernel not in ("rbf", "rbf2d"):
            raise ValueError(f"kernel of kaf is {self.kernel!r}; it must be rbf or rbf2d")

    @property
    def inputs_per_unit(self) -> int:
        """Numbers that make one unit's activation."""
        return 2 if self.kernel == "rbf2d" else 1


class KAF(nn.Module):
    """The activations of one layer.

    Args:
        units: of the layer.
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
            members: how many these are; None: all.
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
