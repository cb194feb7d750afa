"""REINFORCE: Williams 1992, "Simple statistical gradient-following algorithms", with reward-to-go and a baseline.

The whole algorithm is `PolicyGradientLearner.learn`. Trajectories should be long: what a trajectory's end cuts off is
guessed by the baseline, or taken for nothing without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.learner.base import ReplayView
from surreal.learner.gradients import GradientLearner
from surreal.learner.on_policy.evaluating import count_observations, evaluate, scale_rewards
from surreal.learner.on_policy.option_checks import check_not_negative
from surreal.learner.on_policy.policy_losses import (
    explained_variance,
    mean_of_steps,
    normalise,
    policy_gradient_loss,
    value_loss,
)
from surreal.learner.returns import bootstrapped_returns
from surreal.types import TrajectoryBatch
from surreal.utils.pytorch import Module


class PolicyGradientLearner(GradientLearner):
    """Learns a policy from the discounted rewards that followed each action.

    Args:
        model: gives a `PolicyValue`, see `surreal.model.ActorCritic`.
        replay: gives trajectories.
        baseline: subtract the value of the state from the return, and train it (less variance); else the model's value
            is not used.
        normalize_advantage: shift and scale what weights the actions of a batch to mean 0 and deviation 1.
        critic_scale: weight of the baseline's loss, >= 0; raising it fits the baseline faster.
        entropy_beta: weight of the policy's entropy, >= 0; raising it keeps the policy random for longer.
        options: see `GradientLearner`.
    """

    takes = frozenset({"trajectories"})

    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        baseline: bool = True,
        normalize_advantage: bool = True,
        critic_scale: float = 0.5,
        entropy_beta: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, **options)
        check_not_negative(critic_scale=critic_scale, entropy_beta=entropy_beta)
        self.baseline = baseline
        self.normalize_advantage = normalize_advantage
        self.critic_scale = critic_scale
        self.entropy_beta = entropy_beta

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        batch = scale_rewards(self.model, batch)
        policy, log_probability, value = evaluate(self.model, batch)
        with torch.no_grad():
            baseline = value if self.baseline else torch.zeros_like(value)
            returns = bootstrapped_returns(batch.reward, batch.discount, batch.mask, baseline)
            advantage = batch.mask * (returns - baseline[:-1])
            if self.normalize_advantage:
                advantage = normalise(advantage, batch.mask)
        policy_loss = policy_gradient_loss(log_probability, advantage, batch.mask)
        entropy = mean_of_steps(policy.entropy(), batch.mask)
        loss = policy_loss - self.entropy_beta * entropy
        found = {"policy_loss": policy_loss, "entropy": entropy}
        if self.baseline:
            found["value_loss"] = value_loss(value[:-1], returns, batch.mask)
            found["explained_variance"] = explained_variance(value[:-1], returns, batch.mask)
            loss = loss + self.critic_scale * found["value_loss"]
        self.step(loss)
        count_observations(self.model, batch)
        return {name: metric.detach() for name, metric in found.items()}
