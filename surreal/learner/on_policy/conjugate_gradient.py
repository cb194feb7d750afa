"""Conjugate gradients: solves A x = b for a matrix that is only known by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from surreal.learner.losses import check_rank


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], right: Tensor, *, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """Solve A x = right (Hestenes and Stiefel 1952), beginning with x = 0.

    Args:
        product: computes A v of a vector [n], for a symmetric positive definite A.
        right: [n] float32.
        iterations: at most so many products, >= 1; n give the solution, few a direction that is good enough.
        tolerance: squared norm of the residual at which it ends early.

    Returns:
        [n] float32.
    """
    check_rank(1, right=right)
    solution, residual, direction = torch.zeros_like(right), right.clone(), right.clone()
    squared = residual @ residual
    for _ in range(iterations):
        if squared < tolerance:
            break
        image = product(direction)
        step = squared / (direction @ image)
        solution += step * direction
        residual -= step * image
        before, squared = squared, residual @ residual
        direction = residual + squared / before * direction
    return solution
