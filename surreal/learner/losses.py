"""Loss functions: pure, rank-checked, tested against naive loops.

A per-sample quantity is `[B]`, never `[B, 1]`: subtracting one from the other would silently give `[B, B]`.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional


def check_rank(rank: int, **tensors: Tensor) -> None:
    """Refuse tensors of another rank, which would broadcast into a wrong loss without any error.

    Raises:
        ValueError: names the tensor, its shape and the rank it must have.
    """
    for name, tensor in tensors.items():
        if tensor.ndim != rank:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have {rank} dimension(s)")


def huber_loss(prediction: Tensor, target: Tensor, delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """Mean Huber loss: 0.5 e^2 if |e| <= delta, else delta (|e| - 0.5 delta), with e = target - prediction.

    Mnih et al. 2015 clip the error to [-1, 1], which is the gradient of delta = 1. With importance weights the mean is
    over weight * loss (Schaul et al. 2016 section 3.4, arXiv:1511.05952): they multiply the loss of each sample, on the
    quadratic and on the linear branch alike, and are not normalized here.

    Args:
        prediction: [B] float32; the gradient flows through it.
        target: [B] float32, without gradient.
        delta: error from which on the loss is linear, > 0; raising it lets large errors weigh more.
        weight: [B] float32 importance weights, >= 0, or None for one everywhere.

    Returns:
        Scalar float32.
    """
    check_rank(1, prediction=prediction, target=target)
    if weight is None:
        return functional.huber_loss(prediction, target, delta=delta)
    check_rank(1, weight=weight)
    return torch.dot(functional.huber_loss(prediction, target, reduction="none", delta=delta), weight) / len(weight)


def chosen_q(q: Tensor, action: Tensor) -> Tensor:
    """Pick the value of the action taken.

    Args:
        q: [B, n_actions] float32.
        action: [B] int64, 0 <= action < n_actions.

    Returns:
        [B] float32.
    """
    check_rank(2, q=q)
    check_rank(1, action=action)
    return q.gather(1, action.unsqueeze(1)).squeeze(1)


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
