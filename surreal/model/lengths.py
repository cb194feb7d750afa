"""Parameters whose vectors keep their length: optimizers bring them back to it after each step."""

from __future__ import annotations

import torch
from torch import Tensor

_TINY = 1e-12


@torch.no_grad()
def keep_length(parameter: Tensor, axis: int, length: float = 1.0) -> None:
    """Scale a parameter's vectors along an axis to a length, now and after each step of an optimizer."""
    parameter.kept_length = axis, length  # type: ignore[attr-defined]
    restore_length(parameter, axis, length)


def kept_length(parameter: Tensor) -> tuple[int, float] | None:
    """Return what `keep_length` was told of a parameter; None if its length is free."""
    found: tuple[int, float] | None = getattr(parameter, "kept_length", None)
    return found


def restore_length(parameter: Tensor, axis: int, length: float) -> None:
    """Scale vectors along an axis to a length; the caller holds `torch.no_grad()`."""
    norm = torch.linalg.vector_norm(parameter, dim=axis, keepdim=True)
    parameter.mul_(length / norm.clamp(min=_TINY))
