"""Losses, targets and advantages: pure, rank-checked, tested against naive loops.

A per-sample quantity is `[B]`, never `[B, 1]`: subtracting one from the other would silently give `[B, B]`.

The replay makes the n-step sum (`Batch.reward`). `Batch.discount` is gamma^h * (1 - terminated) for the h steps summed,
so a truncated episode bootstraps and a terminated one does not. In trajectories [T, B], a row where `mask` is 0 holds
the final observation of an episode: a truncated episode is bootstrapped from its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from surreal.base.pytorch import is_recording


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


def q_target(
    reward: Tensor, discount: Tensor, next_q: Tensor, select_q: Tensor | None = None, legal: Tensor | None = None
) -> Tensor:
    """Q-learning target: reward + discount * next_q[argmax], Mnih et al. 2013, arXiv:1312.5602.

    Double Q-learning (van Hasselt et al. 2016, arXiv:1509.06461, eq. 4) chooses the action by another network than the
    one which values it: `select_q` is the online network's, `next_q` the target network's.

    Args:
        reward: [B] float32, n-step sum.
        discount: [B] float32, gamma^h * (1 - terminated).
        next_q: [B, n_actions] float32, the target network's values of the bootstrap observation.
        select_q: [B, n_actions] float32 values that choose the action; None lets `next_q` choose.
        legal: see `among_legal`.

    Returns:
        [B] float32; call it under `torch.no_grad()`.
    """
    check_rank(1, reward=reward, discount=discount)
    choosing = next_q if select_q is None else select_q
    check_rank(2, next_q=next_q, select_q=choosing)
    choosing = among_legal(choosing, legal)
    if select_q is None:
        return torch.addcmul(reward, discount, choosing.amax(1))
    best = choosing.argmax(1, keepdim=True)
    return torch.addcmul(reward, discount, next_q.gather(1, best).squeeze(1))


def among_legal(q: Tensor, legal: Tensor | None) -> Tensor:
    """Return values for choosing an action, with minus infinity for illegal ones.

    Args:
        q: [..., n_actions] float32.
        legal: bool like `q`, actions that may be chosen; a row without any, as at an episode's end, has them all. None:
            all.

    Returns:
        [..., n_actions] float32.
    """
    if legal is None:
        return q
    check_rank(q.ndim, legal=legal)
    return q.masked_fill(~legal & legal.any(-1, keepdim=True), -torch.inf)


def bootstrapped_returns(reward: Tensor, discount: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """Discounted returns up to the end of each trajectory, and the value of the observation there.

    R_t = reward_t + discount_t * R_(t+1), with R_T = value_T. A row without a step holds the final observation of an
    episode that was cut, so R_t = value_t there; after a terminal step the discount is 0.

    Args:
        reward: [T, B] float32.
        discount: [T, B] float32, gamma * (1 - terminated).
        mask: [T, B] float32, 1 for a step, 0 for a row without one.
        value: [T + 1, B] float32; zeros give what was collected, and nothing beyond.

    Returns:
        [T, B] float32; call it under `torch.no_grad()`.
    """
    check_rank(2, reward=reward, discount=discount, mask=mask, value=value)
    following, returns = value[-1], []
    for t in reversed(range(len(reward))):
        following = torch.where(mask[t] > 0.0, reward[t] + discount[t] * following, value[t])
        returns.append(following)
    return torch.stack(returns[::-1])


def generalised_advantages(reward: Tensor, discount: Tensor, mask: Tensor, value: Tensor, gae_lambda: float) -> Tensor:
    """Generalized advantage estimation, Schulman et al. 2016 eq. 16, arXiv:1506.02438.

    A_t = delta_t + gae_lambda * discount_t * A_(t+1), with delta_t = reward_t + discount_t * V_(t+1) - V_t.
    A_t + V_t is the lambda-return, which the value is trained toward.

    Args:
        reward: [T, B] float32.
        discount: [T, B] float32, gamma * (1 - terminated).
        mask: [T, B] float32, 1 for a step, 0 for a row without one.
        value: [T + 1, B] float32 of all observations.
        gae_lambda: in [0, 1]. 1 sums all rewards up to the end of the trajectory: the n-step advantage of A3C, with
            the most variance; 0 trusts the value after one step.

    Returns:
        [T, B] float32, 0 in rows without a step; call it under `torch.no_grad()`.
    """
    check_rank(2, reward=reward, discount=discount, mask=mask, value=value)
    delta = mask * (reward + discount * value[1:] - value[:-1])
    decay = gae_lambda * discount * mask
    return _sum_backward(delta, decay)


def _sum_backward(added: Tensor, decay: Tensor) -> Tensor:
    """Compute x_t = added_t + decay_t * x_(t+1) from the last row to the first, [T, B], with x_T = 0."""
    if added.device.type == "cpu" and not is_recording() and not (added.requires_grad or decay.requires_grad):
        # NumPy takes a fifth of the time for rows as short as these, and gives the same numbers.
        sums, factors = added.numpy(force=True).copy(), decay.numpy(force=True)
        for t in range(len(sums) - 2, -1, -1):
            sums[t] += factors[t] * sums[t + 1]
        return torch.from_numpy(sums)
    following, found = torch.zeros_like(added[0]), []
    for t in reversed(range(len(added))):
        following = added[t] + decay[t] * following
        found.append(following)
    return torch.stack(found[::-1])


class VTrace(NamedTuple):
    """V-trace targets and advantages of trajectories, [T, B] float32 each."""

    target: Tensor  #: of the values; the value itself in rows without a step
    advantage: Tensor  #: of the actions, importance weight included; 0 in rows without a step


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    discount: Tensor,
    mask: Tensor,
    value: Tensor,
    *,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    trace_lambda: float = 1.0,
) -> VTrace:
    """V-trace, Espeholt et al. 2018 eq. 1 and section 4.2, arXiv:1802.01561.

    With the importance ratios rho_t = min(rho_bar, ratio_t) and c_t = trace_lambda * min(c_bar, ratio_t):

        v_t = V_t + delta_t + discount_t * c_t * (v_(t+1) - V_(t+1)),   v_T = V_T
        delta_t = rho_t * (reward_t + discount_t * V_(t+1) - V_t)
        A_t = rho_t * (reward_t + discount_t * v_(t+1) - V_t)

    Args:
        log_ratio: [T, B] float32, log of the probability of the action under the policy that learns, less its log under
            the policy that acted.
        reward: [T, B] float32.
        discount: [T, B] float32, gamma * (1 - terminated).
        mask: [T, B] float32, 1 for a step, 0 for a row without one.
        value: [T + 1, B] float32 of all observations.
        rho_bar: > 0; lowering it has less variance, and values a policy nearer to the one that acted.
        c_bar: > 0, <= rho_bar; lowering it has less variance, and learns more slowly.
        trace_lambda: in [0, 1], as that of generalized advantages.

    Returns:
        Targets and advantages; call it under `torch.no_grad()`.
    """
    check_rank(2, log_ratio=log_ratio, reward=reward, discount=discount, mask=mask, value=value)
    ratio = log_ratio.exp()
    rho, trace = ratio.clamp(max=rho_bar) * mask, trace_lambda * ratio.clamp(max=c_bar) * mask
    delta = rho * (reward + discount * value[1:] - value[:-1])
    target = value[:-1] + _sum_backward(delta, discount * trace)
    following = torch.cat((target[1:], value[-1:]))
    return VTrace(target, rho * (reward + discount * following - value[:-1]))
