"""Advantage actor-critic: the loss of A3C (Mnih et al. 2016, arXiv:1602.01783), computed where the experience arrives.

The whole algorithm is `A2CLearner.improve`. n of the n-step advantage is the trajectory's length (`trajectory_steps` of
the replay) with `gae_lambda` 1; below 1, it is generalised advantage estimation (arXiv:1506.02438).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.learner.base import ReplayView
from surreal.learner.on_policy.advantages import generalised_advantages
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.evaluating import evaluate, recorded
from surreal.learner.on_policy.policy_losses import (
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    mean_of_steps,
    policy_gradient_loss,
    value_loss,
)
from surreal.learner.option_checks import check_positive, check_shares
from surreal.types import TrajectoryBatch
from surreal.utils.pytorch import Module


class A2CLearner(ActorCriticLearner):
    """Learns a policy and its value, one update for each batch of short trajectories.

    Args:
        model: see `ActorCriticLearner`.
        replay: see `ActorCriticLearner`.
        gae_lambda: in [0, 1]; 1 is A3C's n-step advantage, lowering it has less variance and trusts the value more.
        policy_clip: for agents that lag: weight each action by how much likelier it has become, but no further than
            this from 1 (PPO's clipped loss), > 0. None: take agents to act with the newest policy, as A3C does.
        critic_clip: keep the value within this of the one that the agent recorded (PPO's clipped loss), > 0; None: no
            such bound.
        options: see `ActorCriticLearner`.
    """

    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        gae_lambda: float = 1.0,
        entropy_beta: float = 0.01,
        normalize_advantage: bool = False,
        policy_clip: float | None = None,
        critic_clip: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, entropy_beta=entropy_beta, normalize_advantage=normalize_advantage, **options)
        check_shares(gae_lambda=gae_lambda)
        check_positive(policy_clip=policy_clip, critic_clip=critic_clip)
        self.gae_lambda = gae_lambda
        self.policy_clip = policy_clip
        self.critic_clip = critic_clip

    def improve(self, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        mask = batch.mask
        policy, log_probability, value = evaluate(self.model, batch)
        with torch.no_grad():
            advantage = generalised_advantages(batch.reward, batch.discount, mask, value, self.gae_lambda)
            returns = advantage + value[:-1]
            advantage = self.normalised(advantage, mask)
        if self.policy_clip is None:
            policy_loss = policy_gradient_loss(log_probability, advantage, mask)
        else:
            log_ratio = log_probability - recorded(batch, "log_probability")
            policy_loss = clipped_policy_loss(log_ratio, advantage, mask, self.policy_clip)
        if self.critic_clip is None:
            critic_loss = value_loss(value[:-1], returns, mask)
        else:
            critic_loss = clipped_value_loss(value[:-1], recorded(batch, "value"), returns, mask, self.critic_clip)
        metrics = self.descend(policy_loss, critic_loss, mean_of_steps(policy.entropy(), mask))
        if self.is_metrics_due:
            metrics["explained_variance"] = explained_variance(value[:-1], returns, mask)
        return metrics
