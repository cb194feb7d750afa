"""Losses of policies and their values: pure, over steps of any leading axes, tested against naive loops.

All tensors of one loss have one shape, [N] or [T, B], which is checked: (N,) against (N, 1) would silently give (N, N).
Means are over the steps, where `mask` is 1; without a mask, all are.
"""

from __future__ import annotations

import torch
from torch import Tensor


def check_same_shape(**tensors: Tensor | None) -> None:
    """Refuse different shapes, which would broadcast into a wrong loss without any error; None has any shape."""
    if len({tensor.shape for tensor in tensors.values() if tensor is not None}) > 1:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items() if tensor is not None)
        raise ValueError(f"these must have one shape: {shapes}")


def mean_of_steps(values: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the steps: sum(mask * values) / sum(mask), a scalar; 0 if there is no step. None: all are steps."""
    if mask is None:
        return values.mean()
    check_same_shape(values=values, mask=mask)
    return (mask * values).sum() / mask.sum().clamp(min=1.0)


def normalise(values: Tensor, mask: Tensor) -> Tensor:
    """Shift and scale to mean 0 and deviation 1 over the steps; rows without a step get 0. One step alone stays 0."""
    centred = mask * (values - mean_of_steps(values, mask))
    return centred / (mean_of_steps(centred.square(), mask).sqrt() + 1e-8)


def policy_gradient_loss(log_probability: Tensor, advantage: Tensor, mask: Tensor | None) -> Tensor:
    """Minus the mean of log p(action) * advantage (Williams 1992), whose gradient is the policy gradient; a scalar.

    All are [...] float32, with a mask of 1 for a step; the gradient flows through the first.
    """
    check_same_shape(log_probability=log_probability, advantage=advantage, mask=mask)
    return -mean_of_steps(log_probability * advantage, mask)


def clipped_policy_loss(
    log_ratio: Tensor, advantage: Tensor, mask: Tensor | None, clip_range: Tensor | float
) -> Tensor:
    """PPO's clipped objective, negative: Schulman et al. 2017 eq. 7, arXiv:1707.06347.

    Args:
        log_ratio: [...] float32, log of the action's probability less its log under the policy that acted; the
            gradient flows through it.
        advantage: [...] float32, without gradient.
        mask: [...] float32, 1 for a step.
        clip_range: ratios further than this from 1, on the side that the advantage pushes to, have no gradient, > 0;
            raising it allows larger steps.

    Returns:
        Scalar float32.
    """
    check_same_shape(log_ratio=log_ratio, advantage=advantage, mask=mask)
    ratio = log_ratio.exp()
    clipped = torch.clamp(ratio, 1.0 - clip_range, 1.0 + clip_range)  # type: ignore[arg-type]
    return -mean_of_steps(torch.minimum(ratio * advantage, clipped * advantage), mask)


def importance_policy_loss(log_ratio: Tensor, advantage: Tensor, mask: Tensor | None) -> Tensor:
    """Minus the mean of ratio * advantage, as in TRPO (Schulman et al. 2015 eq. 14); see `clipped_policy_loss`."""
    check_same_shape(log_ratio=log_ratio, advantage=advantage, mask=mask)
    return -mean_of_steps(log_ratio.exp() * advantage, mask)


def value_loss(value: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Mean squared error of the values, a scalar; all are [...] float32, with a mask of 1 for a step."""
    check_same_shape(value=value, target=target, mask=mask)
    return mean_of_steps((target - value).square(), mask)


def clipped_value_loss(
    value: Tensor, old_value: Tensor, target: Tensor, mask: Tensor | None, clip_range: Tensor | float
) -> Tensor:
    """The larger of the squared errors of the value and of one clipped near the value before the update.

    As in the code of Schulman et al. 2017; it stops a value that went further than `clip_range` toward its target.

    Args:
        value: [...] float32; the gradient flows through it.
        old_value: [...] float32, before the update.
        target: [...] float32, without gradient.
        mask: [...] float32, 1 for a step.
        clip_range: in units of the return, > 0.

    Returns:
        Scalar float32.
    """
    check_same_shape(value=value, old_value=old_value, target=target, mask=mask)
    near = old_value + torch.clamp(value - old_value, -clip_range, clip_range)  # type: ignore[arg-type]
    return mean_of_steps(torch.maximum((target - value).square(), (target - near).square()), mask)


def clip_fraction(log_ratio: Tensor, mask: Tensor | None, clip_range: Tensor | float) -> Tensor:
    """Share of the steps whose ratio is further than `clip_range` from 1, a scalar."""
    return mean_of_steps(((log_ratio.exp() - 1.0).abs() > clip_range).to(log_ratio.dtype), mask)


def policy_drift(log_ratio: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Estimate the distance of a policy from the one that acted, from the actions taken, as metrics.

    The divergence is the mean of ratio - 1 - log ratio, whose expectation it is, and which is never negative (Schulman
    2020, joschu.net/blog/kl-approx.html).

    Args:
        log_ratio: [...] float32, as in `clipped_policy_loss`.
        mask: [...] float32, 1 for a step.
    """
    ratio = log_ratio.exp()
    return {"kl": mean_of_steps(ratio - 1.0 - log_ratio, mask), "importance_ratio_mean": mean_of_steps(ratio, mask)}


def explained_variance(value: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Share of the targets' variance that the values explain: 1 is perfect, 0 as good as a constant; a scalar."""
    error = target - value
    error = error - mean_of_steps(error, mask)
    spread = target - mean_of_steps(target, mask)
    return 1.0 - mean_of_steps(error.square(), mask) / mean_of_steps(spread.square(), mask).clamp(min=1e-8)


def interpolated_loss(
    log_probability: Tensor,
    signal: Tensor,
    is_on_policy: Tensor,
    expected_q: Tensor,
    is_sampled: Tensor,
    *,
    share: float,
    critic_weight: float,
) -> Tensor:
    """Minus the interpolated objective, Gu et al. 2017 algorithm 1, arXiv:1706.00387; its gradient is the policy's.

        -(1 - share) * mean over on-policy steps of log p(action) * signal
        - critic_weight * mean over sampled steps of E_p Q

    Args:
        log_probability: [T, B] float32, of the actions taken; the gradient flows through it.
        signal: [T, B] float32, without gradient: advantages, less those of the critics if they are a control variate.
        is_on_policy: [T, B] float32, 1 for steps that the policy itself took.
        expected_q: [T, B] float32, the critics' expectation over the policy's actions; the gradient flows through it.
        is_sampled: [T, B] float32, 1 for the steps whose observations the critics are asked about.
        share: nu of the paper, in [0, 1].
        critic_weight: b of the paper, >= 0: nu, or 1 with a control variate.

    Returns:
        Scalar float32.
    """
    check_same_shape(log_probability=log_probability, signal=signal, expected_q=expected_q)
    likelihood = mean_of_steps(log_probability * signal, is_on_policy)
    return -(1.0 - share) * likelihood - critic_weight * mean_of_steps(expected_q, is_sampled)
