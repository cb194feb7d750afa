"""Deep deterministic policy gradient: Lillicrap et al. 2016 (arXiv:1509.02971), and TD3 as its options.

The whole algorithm is `DDPGLearner.update_from`; n and gamma are the replay's, which sums rewards and discounts.
TD3 (Fujimoto et al. 2018, arXiv:1802.09477) is two critics in the model, `policy_delay` 2 and `smoothing_sigma` 0.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, Positive, checked
from surreal.base.types import Batch
from surreal.learner.gradients import one_graph
from surreal.learner.losses import TargetNetwork, joint_loss, l2_penalty
from surreal.learner.off_policy.batches import joint_outputs, normalized
from surreal.learner.off_policy.bc import cloned_interventions
from surreal.learner.off_policy.transitions import OffPolicyActorCriticLearner
from surreal.model import DeterministicActorCritic
from surreal.model.norms import batch_statistics
from surreal.model.off_policy.critics import ContinuousCritics

ACTOR, CRITIC = "actor", "critic"


class DDPGLearner(OffPolicyActorCriticLearner[DeterministicActorCritic]):
    """Learns a deterministic policy, and the critics whose values it climbs, from transitions.

    Targets take the smallest value of all critics of the target network (clipped double Q-learning); the policy climbs
    the value of the first. The model's `critic_output` decides whether critics learn means or distributions.

    Args:
        model: a `DeterministicActorCritic`.
        replay: gives the batches; gets |TD error|, the mean over the critics, as priorities if it wants them.
        smoothing_sigma: standard deviation of the noise on the target policy's action, for actions scaled to [-1, 1];
            raising it smooths the values over more actions. 0: none.
        smoothing_clip: bound of that noise.
        l2_coeff: weight of the sum of the critics' squared weights in their loss; raising it keeps them smaller.
    """

    @checked
    def __init__(
        self,
        model: DeterministicActorCritic,
        replay: ReplayView | None = None,
        *,
        smoothing_sigma: NonNegative = 0.0,
        smoothing_clip: Positive = 0.5,
        l2_coeff: NonNegative = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, **options)
        if not isinstance(model, DeterministicActorCritic):
            raise ValueError(f"the model is a {type(model).__name__}; it must be a DeterministicActorCritic")
        self.smoothing_sigma = smoothing_sigma
        self.smoothing_clip = smoothing_clip
        self.l2_coeff = l2_coeff

    def build(self) -> None:
        model = self.model
        self.optimize_group(ACTOR, model.actor.named_parameters())
        self.optimize_group(CRITIC, model.critic.named_parameters(), learning_rate=self.critic_learning_rate)
        if self._tau is not None:
            self.target = TargetNetwork(model, tau=self._tau)
            self.keep("target", self.target.network)

    def generator_of(self, number: int) -> torch.Generator | None:
        return super().generator_of(number) if self.smoothing_sigma > 0.0 else None

    @one_graph
    def update_from(
        self, batch: Batch, generator: torch.Generator | None, moves_actor: bool, is_shown: bool
    ) -> dict[str, Tensor]:
        model, batch = self.model, normalized(self.model, batch)
        critic = cast(ContinuousCritics, model.critic)
        critic.output.follow(batch.reward, batch.discount)
        outputs, target = self.estimate(batch) if generator is None else self.estimate(batch, generator)
        loss = joint_loss(critic.output.losses(outputs, target), batch.extras.get("weight"))
        if self.l2_coeff > 0.0:
            loss = loss + self.l2_coeff * l2_penalty(critic.named_parameters())
        self.step(loss, CRITIC)
        error = critic.output.errors(outputs, target).abs().mean(0)
        found = {"td_error": error}
        if moves_actor:
            # Differentiated by the actor's parameters only: it climbs the critic, which is unchanged.
            with batch_statistics(model.actor):
                action = model.actor(batch.obs)
            policy_loss = self.policy_loss(batch, action)
            if self.intervention_cloning > 0.0:
                policy_loss = policy_loss + self.intervention_cloning * cloned_interventions(model, action, batch)
            self.step(policy_loss, ACTOR)
            found["policy_loss"] = policy_loss.detach()
            if self.target is not None:
                self.target.follow()
        if is_shown:
            q = critic.output.forward(outputs)
            found |= {"loss": loss, "q_mean": q.mean(), "q_max": q.max(), "td_error_abs_mean": error.mean()}
        return found

    def policy_loss(self, batch: Batch, action: Tensor) -> Tensor:
        """Return the loss of the actor, a scalar, from its actions [B, n], through which the gradient flows."""
        return -cast(ContinuousCritics, self.model.critic).first(batch.obs, action).mean()

    def policy_values(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"mu": self.model.forward(batch.obs)}

    def estimate(self, batch: Batch, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Estimate the value of the actions taken, and its target, from a batch that is `normalized`.

        Returns:
            `(outputs, target)`, [critics, B, output.size] and [B, M] float32, see `ScalarOutput.target`; the gradient
            flows through `outputs` only.
        """
        model = self.model
        target = model if self.target is None else cast(DeterministicActorCritic, self.target.network)
        with torch.no_grad():
            action = self._smoothed(target.actor(batch.next_obs), generator)
        if self.joint_batch:
            own, theirs = cast(ContinuousCritics, model.critic), cast(ContinuousCritics, target.critic)
            outputs, following = joint_outputs(own, theirs, batch, action)
        else:
            with batch_statistics(model.critic):
                outputs = model.critic.outputs(batch.obs, batch.action)
            with torch.no_grad():
                following = target.critic.outputs(batch.next_obs, action)
        with torch.no_grad():
            return outputs, model.critic.output.target(following, batch.reward, batch.discount)

    def _smoothed(self, action: Tensor, generator: torch.Generator | None) -> Tensor:
        """Add clipped noise to the target policy's action, the same action for all critics (TD3, section 5.3)."""
        if self.smoothing_sigma == 0.0:
            return action
        noise = torch.empty_like(action).normal_(0.0, self.smoothing_sigma, generator=generator)
        bounds = self.model.bounds
        return bounds.clip(action + bounds.half_range * noise.clamp(-self.smoothing_clip, self.smoothing_clip))
