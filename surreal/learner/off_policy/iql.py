"""Implicit Q-learning: Kostrikov, Nair and Levine 2021 (arXiv:2110.06169).

No value of an action that the experience does not have is ever asked for: an upper expectile of the values of actions
taken stands for the best one. The whole algorithm is `IQLLearner.update_from`. The policy is a normal distribution with
fixed deviation around the model's action, so the log-likelihood that it climbs is a squared distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, Positive, PositiveShare, ShareBelowOne, checked
from surreal.base.types import Batch
from surreal.learner.gradients import one_graph
from surreal.learner.losses import TargetNetwork, critic_loss
from surreal.learner.off_policy.batches import normalized
from surreal.learner.off_policy.bc import cloning_losses
from surreal.learner.off_policy.transitions import TransitionLearner
from surreal.model import ImplicitActorCritic

ACTOR, CRITIC, VALUE = "actor", "critic", "value"


class IQLLearner(TransitionLearner[ImplicitActorCritic]):
    """Learns the values of actions and states, and a policy of the better actions, from transitions.

    Args:
        model: an `ImplicitActorCritic`.
        replay: gives the batches; gets |TD error|, the mean over the critics, as priorities if it wants them.
        expectile: expectile of the values of actions that is a state's value; 0.5 is their mean, and raising it comes
            closer to the best of them.
        inverse_temperature: raising it makes the policy clone more exclusively the actions better than the state's
            value, in units of 1 / reward (the paper's beta); 0 clones all alike.
        max_weight: largest weight of an action, as a multiple of one that is as good as the state's value.
        critic_learning_rate: learning rate of critics and value; None: `initial_learning_rate`, which is always the
            actor's.
        target_update_tau: share by which the target critics move to the critics in each update; raising it makes them
            follow faster.
    """

    @checked
    def __init__(
        self,
        model: ImplicitActorCritic,
        replay: ReplayView | None = None,
        *,
        expectile: ShareBelowOne = 0.7,
        inverse_temperature: NonNegative = 3.0,
        max_weight: Positive = 100.0,
        initial_learning_rate: Positive = 3e-4,
        critic_learning_rate: Positive | None = None,
        target_update_tau: PositiveShare = 0.005,
        gradients_norm_clipping: Positive | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            replay,
            initial_learning_rate=initial_learning_rate,
            gradients_norm_clipping=gradients_norm_clipping,
            **options,
        )
        if not isinstance(model, ImplicitActorCritic):
            raise ValueError(f"the model is a {type(model).__name__}; it must be an ImplicitActorCritic")
        self.expectile = expectile
        self.inverse_temperature = inverse_temperature
        self.max_weight = max_weight
        self._critic_learning_rate = critic_learning_rate
        self._tau = target_update_tau

    def build(self) -> None:
        model, rate = self.model, self._critic_learning_rate
        self.optimize_group(ACTOR, model.actor.named_parameters())
        self.optimize_group(CRITIC, model.critic.named_parameters(), learning_rate=rate)
        self.optimize_group(VALUE, model.value.named_parameters(), learning_rate=rate)
        self.target = TargetNetwork(model.critic, tau=self._tau)
        self.keep("target", self.target.network)

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        found = dict(self.update_from(batch, self.is_metrics_due))
        self.send_priorities(batch, found.pop("td_error"))
        return found

    @one_graph
    def update_from(self, batch: Batch, is_shown: bool) -> dict[str, Tensor]:
        """Update once; returns the absolute TD error [B], and metrics if shown."""
        model, batch = self.model, normalized(self.model, batch)
        value = model.value(batch.obs).squeeze(-1)
        with torch.no_grad():
            target = torch.addcmul(batch.reward, batch.discount, model.value(batch.next_obs).squeeze(-1))
            best = self.target.network(batch.obs, batch.action).amin(0)
            advantage = best - value
            weight = (self.inverse_temperature * advantage).exp().clamp(max=self.max_weight)
        value_loss = expectile_loss(value, best, self.expectile)
        self.step(value_loss, VALUE)
        q = model.critic(batch.obs, batch.action)
        loss = critic_loss(q, target, batch.extras.get("weight"))
        self.step(loss, CRITIC)
        policy_loss = (weight * cloning_losses(model, model.actor(batch.obs), batch.action)).mean()
        self.step(policy_loss, ACTOR)
        self.target.follow()
        error = (target - q.detach()).abs().mean(0)
        if not is_shown:
            return {"td_error": error}
        found = {"td_error": error, "loss": loss, "value_loss": value_loss, "policy_loss": policy_loss}
        return {**found, "q_mean": q.mean(), "q_max": q.max(), "td_error_abs_mean": error.mean()}

    def policy_values(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"mu": self.model.forward(batch.obs)}


def expectile_loss(value: Tensor, target: Tensor, expectile: float) -> Tensor:
    """Mean of |expectile - 1{u < 0}| u^2 with u = target - value, which the expectile of the targets minimizes (eq. 5).

    Args:
        value: [B] float32; the gradient flows through it.
        target: [B] float32, without gradient.
        expectile: 0 < expectile < 1; raising it weighs targets above the value more.

    Returns:
        Scalar float32.
    """
    error = target - value
    return (torch.where(error < 0.0, 1.0 - expectile, expectile) * error.square()).mean()
