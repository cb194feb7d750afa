"""Advantage actor-critic: the loss of A3C (Mnih et al. 2016, arXiv:1602.01783), computed where the experience arrives.

The whole algorithm is `A2CLearner.update_from`. n of the n-step advantage is the trajectory's length
(`trajectory_steps` of the replay) with `gae_lambda` 1; below 1, it is generalized advantage estimation
(arXiv:1506.02438).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, Positive, Share, checked
from surreal.base.types import TrajectoryBatch
from surreal.learner.advantages import generalised_advantages
from surreal.learner.gradients import one_graph
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.evaluating import evaluate, policy_mask, recorded
from surreal.learner.on_policy.policy_losses import (
    clip_fraction,
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    policy_gradient_loss,
    value_loss,
)
from surreal.model.base import Model


class A2CLearner(ActorCriticLearner):
    """Learns a policy and its value, one update for each batch of short trajectories.

    Args:
        gae_lambda: lambda of generalized advantages; 1 is A3C's n-step advantage, lowering it has less variance and
            trusts the value more.
        policy_clip: for lagging agents: bound on how far an action's weight, its probability ratio, may be from 1
            (PPO's clipped loss). None: assume that agents act with the newest policy, as A3C does.
        critic_clip: bound on the value's distance from the one that the agent recorded (PPO's clipped loss). None: no
            bound.
    """

    @checked
    def __init__(
        self,
        model: Model,
        replay: ReplayView | None = None,
        *,
        gae_lambda: Share = 1.0,
        entropy_beta: NonNegative = 0.01,
        normalize_advantage: bool = False,
        policy_clip: Positive | None = None,
        critic_clip: Positive | None = None,
        initial_learning_rate: Positive = 7e-4,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            replay,
            entropy_beta=entropy_beta,
            normalize_advantage=normalize_advantage,
            initial_learning_rate=initial_learning_rate,
            **options,
        )
        self.gae_lambda = gae_lambda
        self.policy_clip = policy_clip
        self.critic_clip = critic_clip

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        return self.update_from(batch, self.is_metrics_due)

    @one_graph
    def update_from(self, batch: TrajectoryBatch, is_shown: bool) -> dict[str, Tensor]:
        mask, chosen = batch.mask, policy_mask(batch)
        policy, log_probability, value = evaluate(self.model, batch)
        with torch.no_grad():
            advantage = generalised_advantages(batch.reward, batch.discount, mask, value, self.gae_lambda)
            returns = advantage + value[:-1]
            advantage = self.normalised(advantage, chosen)
        if self.policy_clip is None:
            policy_loss = policy_gradient_loss(log_probability, advantage, chosen)
        else:
            log_ratio = log_probability - recorded(batch, "log_probability")
            policy_loss = clipped_policy_loss(log_ratio, advantage, chosen, self.policy_clip)
        if self.critic_clip is None:
            critic_loss = value_loss(value[:-1], returns, mask)
        else:
            critic_loss = clipped_value_loss(value[:-1], recorded(batch, "value"), returns, mask, self.critic_clip)
        metrics = self.descend(policy_loss, critic_loss, self.entropy(policy, batch.action, chosen))
        if is_shown:
            metrics["explained_variance"] = explained_variance(value[:-1], returns, mask)
            metrics |= self.drift(batch, log_probability)
            if self.policy_clip is not None:
                metrics["clip_fraction"] = clip_fraction(log_ratio, chosen, self.policy_clip)
        return metrics
