"""Losses of critics: pure, rank-checked, tested against a naive loop."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from surreal.learner.losses import check_rank


def critic_loss(q: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over the batch of the squared error, summed over the critics: each learns as if it were alone.

    Args:
        q: [critics, B] float32; the gradient flows through it.
        target: [B] float32, without gradient, the same for all.
        weight: [B] float32 importance weights, >= 0, or None for one everywhere.

    Returns:
        Scalar float32.
    """
    check_rank(2, q=q)
    check_rank(1, target=target)
    squares = (q - target).square().sum(0)
    if weight is None:
        return squares.mean()
    check_rank(1, weight=weight)
    return torch.dot(squares, weight) / len(weight)


def l2_penalty(parameters: Iterable[tuple[str, Tensor]]) -> Tensor:
    """Sum of the squares of all weights; biases, and the scales and shifts of layer norms, go free.

    Args:
        parameters: pairs of name and parameter.
    """
    squares = [tensor.square().sum() for name, tensor in parameters if name.rpartition(".")[2] == "weight"]
    return torch.stack(squares).sum()
