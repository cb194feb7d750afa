"""The loss of interpolated policy gradients: pure, tested against a naive loop."""

from __future__ import annotations

from torch import Tensor

from surreal.learner.on_policy.policy_losses import check_same_shape, mean_of_steps


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
        expected_q: [T, B] float32, what the critics expect of the policy; the gradient flows through it.
        is_sampled: [T, B] float32, 1 for the steps whose observations the critics are asked about.
        share: nu of the paper, in [0, 1].
        critic_weight: b of the paper, >= 0: nu, or 1 with a control variate.

    Returns:
        Scalar float32.
    """
    check_same_shape(log_probability=log_probability, signal=signal, expected_q=expected_q)
    likelihood = mean_of_steps(log_probability * signal, is_on_policy)
    return -(1.0 - share) * likelihood - critic_weight * mean_of_steps(expected_q, is_sampled)
