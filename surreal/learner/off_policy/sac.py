"""Soft actor-critic with a learned temperature: Haarnoja et al. 2018 (arXiv:1812.05905).

The whole algorithm is `SACLearner.update_from`, for continuous actions and, with a `DiscreteSoftActorCritic`, for
discrete ones (Christodoulou 2019, arXiv:1910.07207): what a policy is expected to do is the model's to say. n and gamma
belong to the replay. With n > 1, the rewards on the way carry no entropy; only the state that is bootstrapped from
does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from surreal.base.contracts import ReplayView
from surreal.base.pytorch import Module
from surreal.base.ranges import NonNegativeInt, Positive, PositiveShare, checked
from surreal.base.types import Batch
from surreal.learner.gradients import GradientLearner, one_graph
from surreal.learner.losses import TargetNetwork, UpdateNoise, joint_loss
from surreal.learner.stepping.reports import normal_values
from surreal.model import SoftActorCritic, SoftModel
from surreal.model.norms import batch_statistics
from surreal.model.off_policy.critics import Critics

ACTOR, CRITIC, TEMPERATURE = "actor", "critic", "temperature"


class Temperature(Module):
    """The temperature as a parameter: its logarithm, so that it stays positive.

    Args:
        initial: > 0.
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(math.log(initial)))

    @property
    def value(self) -> Tensor:
        """The temperature, a scalar without gradient."""
        return self.log_value.detach().exp()


class SACLearner(GradientLearner[SoftModel, Batch]):
    """Learns a policy that seeks reward and entropy, and the critics of its actions, from transitions.

    Args:
        model: a `SoftActorCritic`, or a `DiscreteSoftActorCritic`.
        replay: gives the batches; gets |TD error|, the mean over the critics, as priorities if it wants them.
        critic_learning_rate: learning rate of the critics; None: `initial_learning_rate`, which is always the
            actor's.
        temperature: value of a nat of entropy, in units of reward; raising it explores more. If it is learned, this is
            its initial value.
        learn_temperature: whether to adjust it so that the policy's entropy is `target_entropy`.
        temperature_learning_rate: learning rate of the temperature; None: `initial_learning_rate`.
        target_entropy: target of the policy's entropy, in nats, of actions scaled to [-1, 1]; raising it keeps the
            policy more random. None: minus the number of an action's components, or 0.98 log(n) for n discrete actions,
            which many tasks need lower.
        target_sigma: standard deviation whose normal distribution has the target entropy, for each component of an
            action scaled to [-1, 1], in place of `target_entropy`: n / 2 * log(2 pi e sigma^2) nats for n components
            (FlashSAC, arXiv:2604.04539, with 0.15); raising it keeps the policy more random.
        target_update_tau: share by which the target critics move to the critics in each update; raising it makes them
            follow faster.
        seed: seed of the actions drawn.
    """

    takes = frozenset({"transitions"})

    @checked
    def __init__(
        self,
        model: SoftModel,
        replay: ReplayView | None = None,
        *,
        initial_learning_rate: Positive = 3e-4,
        critic_learning_rate: Positive | None = None,
        temperature: Positive = 1.0,
        learn_temperature: bool = True,
        temperature_learning_rate: Positive | None = None,
        target_entropy: float | None = None,
        target_sigma: Positive | None = None,
        target_update_tau: PositiveShare = 0.005,
        gradients_norm_clipping: Positive | None = None,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            replay,
            initial_learning_rate=initial_learning_rate,
            gradients_norm_clipping=gradients_norm_clipping,
            **options,
        )
        if not isinstance(model, SoftModel):
            raise ValueError(
                f"the model is a {type(model).__name__}; it must be a SoftActorCritic or a DiscreteSoftActorCritic"
            )
        rates = {"critic_learning_rate": critic_learning_rate, "temperature_learning_rate": temperature_learning_rate}
        self._rates = rates
        self._initial_temperature = temperature
        self._learns_temperature = learn_temperature
        if target_sigma is not None:
            if target_entropy is not None or not isinstance(model, SoftActorCritic):
                raise ValueError(
                    f"target_sigma is {target_sigma}; it needs a SoftActorCritic, and takes the place of target_entropy"
                )
            target_entropy = 0.5 * model.bounds.num_components * math.log(2.0 * math.pi * math.e * target_sigma**2)
        self.target_entropy = model.target_entropy if target_entropy is None else target_entropy
        self._tau = target_update_tau
        self._noise = UpdateNoise(seed, self.device)

    def build(self) -> None:
        model, rates = self.model, self._rates
        self.optimize_group(ACTOR, model.actor.named_parameters())
        self.optimize_group(CRITIC, model.critic.named_parameters(), learning_rate=rates["critic_learning_rate"])
        self.target = TargetNetwork(model.critic, tau=self._tau)
        self.keep("target", self.target.network)
        self.temperature = Temperature(self._initial_temperature).to(self.device)
        self.keep(TEMPERATURE, self.temperature)
        if self._learns_temperature:
            named = self.temperature.named_parameters()
            self.optimize_group(TEMPERATURE, named, learning_rate=rates["temperature_learning_rate"])

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        found = dict(self.update_from(batch, self._noise.of(self.updates), self.is_metrics_due))
        self.send_priorities(batch, found.pop("td_error"))
        return found

    @one_graph
    def update_from(self, batch: Batch, generator: torch.Generator, is_shown: bool) -> dict[str, Tensor]:
        """Update once; returns the absolute TD error [B], and metrics if they are shown."""
        model = self.model
        output, temperature = model.critic.output, self.temperature.value
        output.follow(batch.reward, batch.discount)
        outputs, target = self.estimate(batch, generator)
        loss = joint_loss(output.losses(outputs, target), batch.extras.get("weight"))
        self.step(loss, CRITIC)
        legal = batch.extras.get("action_mask")
        with batch_statistics(model.actor):
            climbed, log_probability = model.expect(model.critic, batch.obs, generator, legal)
        # Differentiated by the actor's parameters only: it climbs the critic, which is unchanged.
        policy_loss = (temperature * log_probability - output.climbed(climbed)).mean()
        self.step(policy_loss, ACTOR)
        entropy = -log_probability.detach().mean()
        if self._learns_temperature:
            self.step(self.temperature.log_value * (entropy - self.target_entropy), TEMPERATURE)
        self.target.follow()
        error = output.errors(outputs, target).abs().mean(0)
        if not is_shown:
            return {"td_error": error}
        q = output.forward(outputs)
        return {
            "td_error": error,
            "loss": loss,
            "policy_loss": policy_loss,
            "q_mean": q.mean(),
            "q_max": q.max(),
            "td_error_abs_mean": error.mean(),
            "entropy": entropy,
            "temperature": temperature,
        }

    def policy_values(self, batch: Batch) -> Mapping[str, Tensor]:
        return normal_values(self.model.actor(batch.obs))

    def estimate(self, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Estimate the value of the actions taken, and its target.

        Returns:
            `(outputs, target)`, [critics, B, output.size] and [B, M] float32, see `ScalarOutput.target`; the gradient
            flows through `outputs` only.
        """
        with batch_statistics(self.model.critic):
            outputs = self.model.critic.outputs(batch.obs, batch.action)
        with torch.no_grad():
            critic, legal = cast(Critics, self.target.network), batch.extras.get("next_action_mask")
            following, log_probability = self.model.expect(critic, batch.next_obs, generator, legal)
            cost = self.temperature.value * log_probability
            return outputs, self.model.critic.output.target(following, batch.reward, batch.discount, cost)
