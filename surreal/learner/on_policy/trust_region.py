"""The numerics of a step within a trust region: the solver of its direction, and the search for its length."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from surreal.base.pytorch import check_rank


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], right: Tensor, *, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """Solve A x = right (Hestenes and Stiefel 1952), beginning with x = 0.

    Args:
        product: computes A v of a vector [n], for a symmetric positive definite A.
        right: [n] float32.
        iterations: the most products, >= 1; n give the solution, few a direction that is good enough.
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


def shorter_fraction(fraction: float, *, gain: float, slope: float, kl: float, max_kl: float) -> float:
    """Return the next fraction of a step to try, after one was refused: where its two measurements say it will do.

    Divergence grows with the square of the fraction, which gives one bound; where the surrogate did not improve, the
    parabola through its value and slope at 0 and its value here has its lowest point at the other (Nocedal and Wright
    2006, eq. 3.58). The result is kept between a tenth of the fraction and 0.95 of it.

    Args:
        fraction: the refused fraction, > 0.
        gain: surrogate there, less that at 0; >= 0 where it did not improve.
        slope: slope of the surrogate at 0, by the fraction; < 0.
        kl: divergence there, >= 0.
        max_kl: largest allowed divergence, > 0.

    Returns:
        > 0, below `fraction`.
    """
    wanted = fraction
    if kl > max_kl:
        wanted = 0.95 * fraction * math.sqrt(max_kl / kl)
    if gain >= 0.0:
        wanted = min(wanted, -slope * fraction**2 / (2.0 * (gain - slope * fraction)))
    if not math.isfinite(gain) or not math.isfinite(kl):
        wanted = 0.0
    return min(max(wanted, 0.1 * fraction), 0.95 * fraction)
