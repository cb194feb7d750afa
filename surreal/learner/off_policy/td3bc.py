"""TD3+BC: Fujimoto and Gu 2021 (arXiv:2106.06860), TD3 whose policy also stays near the actions of the experience.

The policy's loss is `TD3BCLearner.policy_loss`; all the rest is `DDPGLearner`.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, Positive, PositiveInt, checked
from surreal.base.types import Batch
from surreal.learner.off_policy.ddpg import DDPGLearner
from surreal.model import DeterministicActorCritic
from surreal.model.off_policy.critics import ContinuousCritics

#: A mean absolute value below this counts as this much.
_LEAST_VALUE = 1e-8


class TD3BCLearner(DDPGLearner):
    """Learns a deterministic policy of high value near the actions of the experience, and critics of it.

    Args:
        model: a `DeterministicActorCritic`; the paper normalizes observations (`normalize_obs: true`).
        replay: see `DDPGLearner`.
        value_weight: weight of the value, as a multiple of its mean absolute size, against the squared distance from
            the action taken (the paper's alpha); raising it trusts the critics more, and leaves the experience
            further behind, as is right once the policy acts itself.
    """

    @checked
    def __init__(
        self,
        model: DeterministicActorCritic,
        replay: ReplayView | None = None,
        *,
        value_weight: Positive = 2.5,
        policy_delay: PositiveInt = 2,
        smoothing_sigma: NonNegative = 0.2,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, policy_delay=policy_delay, smoothing_sigma=smoothing_sigma, **options)
        self.value_weight = value_weight

    def policy_loss(self, batch: Batch, action: Tensor) -> Tensor:
        scaled = self.model.bounds.to_scaled
        value = cast(ContinuousCritics, self.model.critic).first(batch.obs, action)
        weight = self.value_weight / value.detach().abs().mean().clamp(min=_LEAST_VALUE)
        return (scaled(action) - scaled(batch.action)).square().mean() - weight * value.mean()
