"""IMPALA's learner, which corrects for agents whose policy lags: Espeholt et al. 2018, arXiv:1802.01561.

The whole algorithm is `VTraceLearner.learn`; V-trace itself is `losses.vtrace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, Positive, Share, checked
from surreal.base.types import TrajectoryBatch
from surreal.learner.advantages import vtrace
from surreal.learner.gradients import one_graph
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.evaluating import evaluate, policy_mask, recorded
from surreal.learner.on_policy.policy_losses import explained_variance, policy_gradient_loss, value_loss
from surreal.model.base import Model


class VTraceLearner(ActorCriticLearner):
    """Learns a policy and its value from trajectories of older versions of that policy.

    Args:
        rho_bar: bound of the importance weights; lowering it has less variance, and values a policy closer to the one
            that acted.
        c_bar: bound of the weights that traces are cut by, <= rho_bar; lowering it learns more slowly.
        trace_lambda: share of each trace that is kept; lowering it has less variance and trusts the value more.
    """

    @checked
    def __init__(
        self,
        model: Model,
        replay: ReplayView | None = None,
        *,
        rho_bar: Positive = 1.0,
        c_bar: Positive = 1.0,
        trace_lambda: Share = 1.0,
        entropy_beta: NonNegative = 0.01,
        normalize_advantage: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, entropy_beta=entropy_beta, normalize_advantage=normalize_advantage, **options)
        if c_bar > rho_bar:
            raise ValueError(f"c_bar is {c_bar}; it must be <= rho_bar, which is {rho_bar}")
        self.rho_bar = rho_bar
        self.c_bar = c_bar
        self.trace_lambda = trace_lambda

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        return self.update_from(batch, self.is_metrics_due)

    @one_graph
    def update_from(self, batch: TrajectoryBatch, is_shown: bool) -> dict[str, Tensor]:
        mask, chosen = batch.mask, policy_mask(batch)
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
        policy_loss = policy_gradient_loss(log_probability, self.normalised(advantage, chosen), chosen)
        critic_loss = value_loss(value[:-1], target, mask)
        metrics = self.descend(policy_loss, critic_loss, self.entropy(policy, batch.action, chosen))
        if is_shown:
            metrics |= self.drift(batch, log_probability)
            metrics["explained_variance"] = explained_variance(value[:-1], target, mask)
        return metrics
