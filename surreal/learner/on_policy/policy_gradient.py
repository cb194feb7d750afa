"""REINFORCE: Williams 1992, "Simple statistical gradient-following algorithms", with reward-to-go and a baseline.

The whole algorithm is `PolicyGradientLearner.learn`. Trajectories should be long: the baseline estimates the rewards
after a trajectory's end; without a baseline, they count as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.types import TrajectoryBatch
from surreal.learner.advantages import bootstrapped_returns
from surreal.learner.gradients import one_graph
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.evaluating import evaluate, policy_mask
from surreal.learner.on_policy.policy_losses import explained_variance, policy_gradient_loss, value_loss
from surreal.model.base import Model


class PolicyGradientLearner(ActorCriticLearner):
    """Learns a policy from the discounted rewards that followed each action.

    Args:
        baseline: whether to subtract the state's value from the return, and train it (less variance). Otherwise, the
            model's value is not used.
    """

    def __init__(
        self, model: Model, replay: ReplayView | None = None, *, baseline: bool = True, **options: Any
    ) -> None:
        super().__init__(model, replay, **options)
        self.baseline = baseline

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        return self.update_from(batch, self.is_metrics_due)

    @one_graph
    def update_from(self, batch: TrajectoryBatch, is_shown: bool) -> dict[str, Tensor]:
        policy, log_probability, value = evaluate(self.model, batch)
        chosen = policy_mask(batch)
        with torch.no_grad():
            baseline = value if self.baseline else torch.zeros_like(value)
            returns = bootstrapped_returns(batch.reward, batch.discount, batch.mask, baseline)
            advantage = self.normalised(batch.mask * (returns - baseline[:-1]), chosen)
        policy_loss = policy_gradient_loss(log_probability, advantage, chosen)
        entropy = self.entropy(policy, batch.action, chosen)
        if self.baseline:
            metrics = self.descend(policy_loss, value_loss(value[:-1], returns, batch.mask), entropy)
        else:
            self.step(policy_loss - self.entropy_beta * entropy)
            metrics = {"policy_loss": policy_loss, "entropy": entropy}
        if is_shown:
            metrics |= self.drift(batch, log_probability)
            if self.baseline:
                metrics["explained_variance"] = explained_variance(value[:-1], returns, batch.mask)
        return metrics
