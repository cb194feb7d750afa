"""Advantage actor-critic: the loss of A3C (Mnih et al. 2016, arXiv:1602.01783), computed where the experience arrives.

The whole algorithm is `A2CLearner.step_actor_critic`. n of the n-step advantage is the trajectory's length
(`trajectory_steps` of the replay) with `gae_lambda` 1; below 1, it is generalized advantage estimation
(arXiv:1506.02438). Curiosity (`learner/curiosity.py`) adds to the rewards before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, NonNegativeInt, Positive, Share, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import TrajectoryBatch
from surreal.learner.advantages import generalised_advantages
from surreal.learner.curiosity import CuriositySettings, Surprise, read_curiosity, surprise
from surreal.learner.gradients import one_graph
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.evaluating import evaluate, recorded
from surreal.learner.on_policy.policy_losses import (
    clip_fraction,
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    mean_of_steps,
    policy_gradient_loss,
    value_loss,
)
from surreal.model import ActorCritic
from surreal.model.base import Model

CURIOSITY = "curiosity"


class A2CLearner(ActorCriticLearner):
    """Learns a policy and its value, one update for each batch of short trajectories.

    Args:
        gae_lambda: lambda of generalized advantages; 1 is A3C's n-step advantage, lowering it has less variance and
            trusts the value more.
        policy_clip: for lagging agents: bound on how far an action's weight, its probability ratio, may be from 1
            (PPO's clipped loss). None: assume that agents act with the newest policy, as A3C does.
        critic_clip: bound on the value's distance from the one that the agent recorded (PPO's clipped loss). None: no
            bound.
        icm: intrinsic curiosity, reward for what could not be foreseen, as `{reward_scale, forward_share,
            learning_rate, hidden_sizes, convolutions, activation, units}`; see `surreal.learner.curiosity`. {} takes
            all defaults. None: none.
        seed: seed of the initial parameters of curiosity's networks.
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
        icm: Mapping[str, Any] | None = None,
        initial_learning_rate: Positive = 7e-4,
        seed: NonNegativeInt = 0,
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
        self._icm = read_curiosity(icm)
        if self._icm is not None and not isinstance(model, ActorCritic):
            raise ValueError(f"the model is a {type(model).__name__}; icm needs an ActorCritic")
        self._seed = seed

    def build(self) -> None:
        super().build()
        if self._icm is not None:
            model = cast(ActorCritic, self.model)
            self.dynamics = self._icm.make(cast(ObsSpec, model.obs_spec), model.action_space, seed=self._seed)
            self.keep(CURIOSITY, self.dynamics.to(self.device))
            named = self.dynamics.named_parameters()
            self.optimize_group(CURIOSITY, named, learning_rate=self._icm.learning_rate)

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        return self.update_from(batch, self.is_metrics_due)

    @one_graph
    def update_from(self, batch: TrajectoryBatch, is_shown: bool) -> dict[str, Tensor]:
        """Update once, and return the metrics."""
        if self._icm is None:
            return self.step_actor_critic(batch, is_shown)
        found = self.foresee(batch)
        metrics = self.step_actor_critic(batch._replace(reward=batch.reward + found.reward), is_shown)
        loss = mean_of_steps(found.loss, batch.mask)
        self.step(loss, CURIOSITY)
        intrinsic = mean_of_steps(found.reward, batch.mask)
        return {**metrics, "curiosity_loss": loss, "intrinsic_reward_mean": intrinsic}

    def step_actor_critic(self, batch: TrajectoryBatch, is_shown: bool) -> dict[str, Tensor]:
        """Update policy and value once, and return the metrics."""
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
        metrics = self.descend(policy_loss, critic_loss, self.entropy(policy, batch.action, mask))
        if is_shown:
            metrics["explained_variance"] = explained_variance(value[:-1], returns, mask)
            metrics |= self.drift(batch, log_probability)
            if self.policy_clip is not None:
                metrics["clip_fraction"] = clip_fraction(log_ratio, mask, self.policy_clip)
        return metrics

    def foresee(self, batch: TrajectoryBatch) -> Surprise:
        """Compute reward and loss of curiosity, for observations as the policy sees them."""
        settings, obs_filter = cast(CuriositySettings, self._icm), cast(ActorCritic, self.model).obs_filter
        if obs_filter is not None:
            batch = batch._replace(obs=obs_filter.forward(batch.obs))
        return surprise(self.dynamics, batch, settings)
