"""Soft actor-critic with a learned temperature: Haarnoja et al. 2018 (arXiv:1812.05905).

The whole algorithm is `SACLearner.update_from`, for continuous actions and, with a `DiscreteSoftActorCritic`, for
discrete ones (Christodoulou 2019, arXiv:1910.07207): what a policy is expected to do is the model's to say. n and gamma
belong to the replay. With n > 1, only the state that is bootstrapped from carries entropy, not the rewards on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from surreal.base.contracts import ReplayView
from surreal.base.pytorch import Module
from surreal.base.ranges import Positive, checked
from surreal.base.types import Batch
from surreal.learner.gradients import one_graph
from surreal.learner.losses import TargetNetwork, joint_loss
from surreal.learner.off_policy.batches import joint_outputs, normalized
from surreal.learner.off_policy.bc import cloned_interventions
from surreal.learner.off_policy.transitions import OffPolicyActorCriticLearner
from surreal.learner.stepping.reports import normal_values
from surreal.model import SoftActorCritic, SoftModel
from surreal.model.norms import batch_statistics
from surreal.model.off_policy.critics import ContinuousCritics, Critics

ACTOR, CRITIC, TEMPERATURE = "actor", "critic", "temperature"


class Temperature(Module):
    """The temperature, `initial` > 0, as a parameter: its logarithm, so that it stays positive."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(math.log(initial)))

    @property
    def value(self) -> Tensor:
        return self.log_value.detach().exp()


class SACLearner(OffPolicyActorCriticLearner[SoftModel]):
    """Learns a policy that seeks reward and entropy, and the critics of its actions, from transitions.

    Args:
        model: a `SoftActorCritic`, or a `DiscreteSoftActorCritic`.
        replay: gives the batches; gets |TD error|, the mean over the critics, as priorities if it wants them.
        temperature: value of a nat of entropy, in units of reward, or of the critics' `output.unit`; raising it
            explores more. If it is learned, this is its initial value.
        learn_temperature: whether to adjust it so that the policy's entropy is `target_entropy`.
        temperature_learning_rate: learning rate of the temperature; None: `initial_learning_rate`.
        target_entropy: target of the policy's entropy, in nats, of actions scaled to [-1, 1]; raising it keeps the
            policy more random. None: minus the number of an action's components, or 0.98 log(n) for n discrete actions,
            which many tasks need lower.
        target_sigma: standard deviation whose normal distribution has the target entropy, for each component of an
            action scaled to [-1, 1], in place of `target_entropy`: n / 2 * log(2 pi e sigma^2) nats for n components
            (FlashSAC, arXiv:2604.04539, with 0.15); raising it keeps the policy more random.
    """

    actor_metrics = ("policy_loss", "entropy")

    @checked
    def __init__(
        self,
        model: SoftModel,
        replay: ReplayView | None = None,
        *,
        initial_learning_rate: Positive = 3e-4,
        temperature: Positive = 1.0,
        learn_temperature: bool = True,
        temperature_learning_rate: Positive | None = None,
        target_entropy: float | None = None,
        target_sigma: Positive | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, initial_learning_rate=initial_learning_rate, **options)
        if not isinstance(model, SoftModel):
            raise ValueError(
                f"the model is a {type(model).__name__}; it must be a SoftActorCritic or a DiscreteSoftActorCritic"
            )
        self._temperature_learning_rate = temperature_learning_rate
        self._initial_temperature = temperature
        self._learns_temperature = learn_temperature
        if target_sigma is not None:
            if target_entropy is not None or not isinstance(model, SoftActorCritic):
                raise ValueError(
                    f"target_sigma is {target_sigma}; it needs a SoftActorCritic, and takes the place of target_entropy"
                )
            target_entropy = 0.5 * model.bounds.num_components * math.log(2.0 * math.pi * math.e * target_sigma**2)
        self.target_entropy = model.target_entropy if target_entropy is None else target_entropy
        if self.joint_batch and not isinstance(model, SoftActorCritic):
            raise ValueError("joint_batch is true; it needs a SoftActorCritic")

    def build(self) -> None:
        model = self.model
        self.optimize_group(ACTOR, model.actor.named_parameters())
        self.optimize_group(CRITIC, model.critic.named_parameters(), learning_rate=self.critic_learning_rate)
        if self._tau is not None:
            self.target = TargetNetwork(model.critic, tau=self._tau)
            self.keep("target", self.target.network)
        self.temperature = Temperature(self._initial_temperature).to(self.device)
        self.keep(TEMPERATURE, self.temperature)
        if self._learns_temperature:
            named = self.temperature.named_parameters()
            self.optimize_group(TEMPERATURE, named, learning_rate=self._temperature_learning_rate)

    @one_graph
    def update_from(
        self, batch: Batch, generator: torch.Generator, moves_actor: bool, is_shown: bool
    ) -> dict[str, Tensor]:
        batch, output = normalized(self.model, batch), self.model.critic.output
        output.follow(batch.reward, batch.discount)
        temperature = self.temperature.value * output.unit
        outputs, target = self.estimate(batch, generator)
        loss = self.critic_loss(batch, outputs, target, generator)
        self.step(loss, CRITIC)
        error = output.errors(outputs, target).abs().mean(0)
        found = {"td_error": error}
        if moves_actor:
            found |= self._improve_policy(batch, generator, temperature)
        if self.target is not None:
            self.target.follow()
        if is_shown:
            q = output.forward(outputs)
            found |= {"loss": loss, "q_mean": q.mean(), "q_max": q.max(), "td_error_abs_mean": error.mean()}
            found["temperature"] = temperature
        return found

    def critic_loss(self, batch: Batch, outputs: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        """Return the loss of all critics, a scalar, from what `estimate` returned; `generator` may draw more."""
        return joint_loss(self.model.critic.output.losses(outputs, target), batch.extras.get("weight"))

    def _improve_policy(self, batch: Batch, generator: torch.Generator, temperature: Tensor) -> dict[str, Tensor]:
        model = self.model
        with batch_statistics(model.actor):
            climbed, log_probability = model.expect(model.critic, batch.obs, generator, batch.extras.get("action_mask"))
        # Differentiated by the actor's parameters only: it climbs the critic, which is unchanged.
        loss = (temperature * log_probability - model.critic.output.climbed(climbed)).mean()
        if self.intervention_cloning > 0.0:
            loss = loss + self.intervention_cloning * cloned_interventions(model, model.actor(batch.obs), batch)
        self.step(loss, ACTOR)
        entropy = -log_probability.detach().mean()
        if self._learns_temperature:
            self.step(self.temperature.log_value * (entropy - self.target_entropy), TEMPERATURE)
        return {"policy_loss": loss.detach(), "entropy": entropy}

    def policy_values(self, batch: Batch) -> Mapping[str, Tensor]:
        return normal_values(self.model.forward(batch.obs))

    def estimate(self, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Estimate the value of the actions taken, and its target, from a batch that is `normalized`.

        Returns:
            `(outputs, target)`, [critics, B, output.size] and [B, M] float32, see `ScalarOutput.target`; the gradient
            flows through `outputs` only.
        """
        model, target = self.model, self.model.critic if self.target is None else self.target.network
        output, critic = model.critic.output, cast(Critics, target)
        if self.joint_batch:
            with torch.no_grad():
                action, log_probability = cast(SoftActorCritic, model).draw(batch.next_obs, generator)
            own, theirs = cast(ContinuousCritics, model.critic), cast(ContinuousCritics, critic)
            outputs, following = joint_outputs(own, theirs, batch, action)
        else:
            with batch_statistics(model.critic):
                outputs = model.critic.outputs(batch.obs, batch.action)
            with torch.no_grad():
                legal = batch.extras.get("next_action_mask")
                following, log_probability = model.expect(critic, batch.next_obs, generator, legal)
        with torch.no_grad():
            cost = self.temperature.value * output.unit * log_probability
            return outputs, output.target(following, batch.reward, batch.discount, cost)
