"""IMPALA's learner, which corrects for agents whose policy lags: Espeholt et al. 2018, arXiv:1802.01561.

The whole algorithm is `VTraceLearner.learn`; V-trace itself is in `advantages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.learner.base import ReplayView
from surreal.learner.gradients import GradientLearner
from surreal.learner.on_policy.advantages import vtrace
from surreal.learner.on_policy.evaluating import (
    count_observations,
    evaluate,
    recorded,
    scale_rewards,
)
from surreal.learner.on_policy.option_checks import check_not_negative, check_positive, check_shares
from surreal.learner.on_policy.policy_losses import (
    explained_variance,
    mean_of_steps,
    normalise,
    policy_gradient_loss,
    value_loss,
)
from surreal.types import TrajectoryBatch
from surreal.utils.pytorch import Module


class VTraceLearner(GradientLearner):
    """Learns a policy and its value from trajectories of older versions of that policy.

    Args:
        model: gives a `PolicyValue`, see `surreal.model.ActorCritic`.
        replay: gives trajectories, with the log-probabilities that `surreal.agent.PolicyAgent` records.
        rho_bar: bound of the importance weights, > 0; lowering it has less variance, and values a policy nearer to the
            one that acted.
        c_bar: bound of the weights that traces are cut by, > 0 and <= rho_bar; lowering it learns more slowly.
        trace_lambda: in [0, 1]; lowering it has less variance and trusts the value more.
        entropy_beta: weight of the policy's entropy, >= 0; raising it keeps the policy random for longer.
        critic_scale: weight of the value's loss, >= 0; raising it fits the value faster.
        normalize_advantage: shift and scale the advantages of a batch to mean 0 and deviation 1.
        options: see `GradientLearner`.
    """

    takes = frozenset({"trajectories"})

    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        trace_lambda: float = 1.0,
        entropy_beta: float = 0.01,
        critic_scale: float = 0.5,
        normalize_advantage: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, **options)
        check_positive(rho_bar=rho_bar, c_bar=c_bar)
        check_shares(trace_lambda=trace_lambda)
        check_not_negative(entropy_beta=entropy_beta, critic_scale=critic_scale)
        if c_bar > rho_bar:
            raise ValueError(f"c_bar is {c_bar}; it must be <= rho_bar, which is {rho_bar}")
        self.rho_bar = rho_bar
        self.c_bar = c_bar
        self.trace_lambda = trace_lambda
        self.entropy_beta = entropy_beta
        self.critic_scale = critic_scale
        self.normalize_advantage = normalize_advantage

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        batch = scale_rewards(self.model, batch)
        mask = batch.mask
        policy, log_probability, value = evaluate(self.model, batch)
        log_ratio = log_probability - recorded(batch, "log_probability")
        with torch.no_grad():
            target, advantage = vtrace(
                log_ratio,
                batch.reward,
                batch.discount,
                mask,
                value,
                rho_bar=self.rho_bar,
                c_bar=self.c_bar,
                trace_lambda=self.trace_lambda,
            )
            if self.normalize_advantage:
                advantage = normalise(advantage, mask)
        policy_loss = policy_gradient_loss(log_probability, advantage, mask)
        critic_loss = value_loss(value[:-1], target, mask)
        entropy = mean_of_steps(policy.entropy(), mask)
        self.step(policy_loss + self.critic_scale * critic_loss - self.entropy_beta * entropy)
        count_observations(self.model, batch)
        if not self.is_metrics_due:
            return {}
        return {
            "policy_loss": policy_loss.detach(),
            "value_loss": critic_loss.detach(),
            "entropy": entropy.detach(),
            "importance_ratio_mean": mean_of_steps(log_ratio.detach().exp(), mask),
            "explained_variance": explained_variance(value[:-1], target, mask).detach(),
        }
