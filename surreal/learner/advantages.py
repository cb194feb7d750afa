"""Returns and advantages of trajectories, and V-trace: pure, rank-checked, tested against naive loops.

In trajectories [T, B], a row where `mask` is 0 holds the final observation of an episode: a truncated episode is
bootstrapped from its value.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from surreal.base.pytorch import check_rank, is_recording


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
