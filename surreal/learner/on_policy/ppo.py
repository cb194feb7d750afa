"""Proximal policy optimization: Schulman et al. 2017, arXiv:1707.06347, by clipping or by an adaptive KL penalty.

The whole algorithm is `PPOLearner.learn`, and what one minibatch does is `PPOLearner.update_from`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, NonNegativeInt, Positive, PositiveInt, Share, checked
from surreal.base.schedules import ScheduleSettings, read_schedule
from surreal.base.types import TrajectoryBatch
from surreal.learner.gradients import one_graph
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.evaluating import Targets, make_targets
from surreal.learner.on_policy.minibatches import Minibatch, epochs
from surreal.learner.on_policy.policy_losses import (
    clip_fraction,
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    importance_policy_loss,
    mean_of_steps,
    value_loss,
)
from surreal.model import Distribution
from surreal.model.base import Model


class Losses(NamedTuple):
    """Scalars of one minibatch. Those that are not requested are 0."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor  #: from the policy before the update
    clip_fraction: Tensor  #: of the steps, those whose ratio left the clip range


class StepInputs(NamedTuple):
    """Inputs of one step: tensors of N steps, or of whole sequences [T, b]."""

    steps: Minibatch
    log_probability: Tensor  #: under the policy that the step is clipped around
    advantage: Tensor
    returns: Tensor
    value: Tensor | None  #: before the update, where the value is clipped
    policy: Distribution | None  #: before the update, where its divergence counts
    clip_range: Tensor | float | None
    kl_weight: Tensor | None  #: of the penalty, a scalar
    policy_mask: Tensor | None  #: 1 for steps whose action the policy chose; None: all are


class PPOLearner(ActorCriticLearner):
    """Learns a policy and its value by several epochs over each batch, and keeps the policy near the one that acted.

    Args:
        policy_iterations: epochs over a batch; raising it learns more from each env step, and changes the policy more.
        value_func_iterations: epochs of the value, if the model has a separate network for it (`value_hidden_sizes`).
            None: the same number.
        mini_batch: steps of a minibatch; raising it gives fewer and less noisy steps. With a recurrent model, the
            number is rounded to whole trajectories. None: the whole batch.
        clip_range: ratios further than this from 1 have no gradient; raising it allows larger steps. A number, or a
            schedule, as `learning_rate_factor` is one. None: only the penalty of `kl_target` limits steps.
        clip_range_end: final clip range, along the same schedule as the learning rate (`max_global_step`,
            `schedule_step`); None: constant.
        kl_target: divergence of an update, in nats, which the adaptive weight of a penalty aims at. None: no penalty.
        max_kl: divergence of a minibatch, in nats, above which an update's epochs of the policy end. None: no limit.
        vf_clipped_loss: whether to clip the value's loss as well, with the same range.
        gae_lambda: lambda of generalized advantages; raising it has more variance and less bias.
        l2_coeff: weight of the squares of the value's parameters; raising it keeps values smoother.
        seed: seed of the order of minibatches, and of the initial parameters of curiosity's networks.
    """

    takes_several_steps = True

    @checked
    def __init__(
        self,
        model: Model,
        replay: ReplayView | None = None,
        *,
        policy_iterations: PositiveInt = 10,
        value_func_iterations: PositiveInt | None = None,
        mini_batch: PositiveInt | None = 64,
        clip_range: Positive | ScheduleSettings | None = 0.2,
        clip_range_end: NonNegative | None = None,
        kl_target: Positive | None = None,
        max_kl: Positive | None = None,
        vf_clipped_loss: bool = False,
        gae_lambda: Share = 0.95,
        l2_coeff: NonNegative = 0.0,
        initial_learning_rate: Positive = 3e-4,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, initial_learning_rate=initial_learning_rate, seed=seed, **options)
        if clip_range is None and kl_target is None:
            raise ValueError("clip_range and kl_target are both null; one of them must hold the policy")
        if clip_range is None and (clip_range_end is not None or vf_clipped_loss):
            raise ValueError("clip_range is null; clip_range_end and vf_clipped_loss need it")
        self._has_own_value = model.value_hiddens is not None
        if value_func_iterations not in (None, policy_iterations) and not self._has_own_value:
            problem = f"value_func_iterations is {value_func_iterations} and policy_iterations {policy_iterations}"
            raise ValueError(f"{problem}, but the model has no separate network for the value (value_hidden_sizes)")
        self.policy_iterations = policy_iterations
        self.value_iterations = policy_iterations if value_func_iterations is None else value_func_iterations
        self.mini_batch = mini_batch
        self._clip_schedule: Callable[[], float] | None = None
        #: Clip range of the last update.
        self.clip_range: float | None
        if isinstance(clip_range, Sequence | Mapping):
            if clip_range_end is not None:
                raise ValueError("clip_range is a schedule, so clip_range_end cannot be its end")
            schedule = read_schedule("clip_range", clip_range)
            self._clip_schedule = lambda: schedule(self.schedule_position)
            self.clip_range = schedule(0)
        else:
            self.clip_range = clip_range
            if clip_range is not None and clip_range_end is not None:
                self._clip_schedule = self.make_schedule("clip_range_end", clip_range, clip_range_end)
        self._kl_target = kl_target
        self.kl_penalty: AdaptiveKL | None = None
        self.max_kl = max_kl
        self.vf_clipped_loss = vf_clipped_loss
        self.gae_lambda = gae_lambda
        self.l2_coeff = l2_coeff

    def build(self) -> None:
        super().build()
        self.kl_penalty = None if self._kl_target is None else AdaptiveKL(self._kl_target)
        if self.kl_penalty is not None:
            self.keep("kl_penalty", self.kl_penalty)
        self._value_parameters = [each for name, each in self.model.named_parameters() if name.startswith("value")]

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        targets = self.targets(batch)
        if self._clip_schedule is not None:
            self.clip_range = self._clip_schedule()
        rng = np.random.default_rng((self._seed, self.updates))
        parts = epochs(batch, self.mini_batch, whole=self.model.state_shape is not None, rng=rng)
        last: list[Losses] = []
        moves_policy, policy_epochs = True, 0
        for epoch in range(max(self.policy_iterations, self.value_iterations)):
            moves_policy = moves_policy and epoch < self.policy_iterations
            if moves_policy:
                last, policy_epochs = [], epoch + 1
            # Metrics are those of the last epoch; with max_kl, any may be it.
            is_shown = self.is_metrics_due and (self.max_kl is not None or epoch == self.policy_iterations - 1)
            for minibatch in parts():
                part, moves_value = self.part_of(minibatch, targets, is_shown), epoch < self.value_iterations
                had_policy = moves_policy
                if self.max_kl is None:
                    moves_value = moves_value and (moves_policy or self._has_own_value)
                    losses = Losses(**self.update_from(part, moves_policy, moves_value, is_shown))
                else:
                    losses = self.losses(part, is_shown)
                    moves_policy = moves_policy and float(losses.kl.detach()) <= self.max_kl
                    moves_value = moves_value and (moves_policy or self._has_own_value)
                if had_policy and (is_shown or self.kl_penalty is not None):
                    last.append(Losses(*(loss.detach() for loss in losses)))
                if not (moves_policy or moves_value):
                    break
                if self.max_kl is not None:
                    self.step(self._total(part, losses, moves_policy, moves_value), *self.groups)
        if not last:
            return {}
        means = Losses(*(torch.stack(column).mean() for column in zip(*last, strict=True)))
        if self.kl_penalty is not None:
            self.kl_penalty.after_update(float(means.kl))
        return self._metrics(means, targets, batch, policy_epochs) if self.is_metrics_due else {}

    def targets(self, batch: TrajectoryBatch) -> Targets:
        return make_targets(self.model, batch, gae_lambda=self.gae_lambda, normalize_advantage=self.normalize_advantage)

    @one_graph
    def update_from(self, part: StepInputs, moves_policy: bool, moves_value: bool, is_shown: bool) -> dict[str, Tensor]:
        losses = self.losses(part, is_shown)
        self.step(self._total(part, losses, moves_policy, moves_value), *self.groups)
        return losses._asdict()

    def losses(self, part: StepInputs, is_shown: bool = False) -> Losses:
        """Compute the losses of one minibatch and, if requested, further metrics."""
        steps, clip_range, chosen = part.steps, part.clip_range, part.policy_mask
        policy, value = steps.compute(self.model)
        log_ratio, advantage = policy.log_probability(steps.action) - part.log_probability, part.advantage
        if chosen is not None:
            log_ratio = log_ratio.masked_fill(chosen == 0.0, 0.0)
        clipped = entropy = divergence = log_ratio.new_zeros(())
        if clip_range is None:
            policy_loss = importance_policy_loss(log_ratio, advantage, chosen)
        else:
            policy_loss = clipped_policy_loss(log_ratio, advantage, chosen, clip_range)
            if is_shown:
                clipped = clip_fraction(log_ratio.detach(), chosen, clip_range)
        if part.value is not None and clip_range is not None:
            critic_loss = clipped_value_loss(value, part.value, part.returns, steps.mask, clip_range)
        else:
            critic_loss = value_loss(value, part.returns, steps.mask)
        if self.entropy_beta > 0.0 or is_shown:
            entropy = self.entropy(policy, steps.action, chosen)
        if part.policy is not None:
            divergence = mean_of_steps(part.policy.kl(policy), chosen)
        return Losses(policy_loss, critic_loss, entropy, divergence, clipped)

    def part_of(self, minibatch: Minibatch, targets: Targets, is_shown: bool = False) -> StepInputs:
        """Collect the inputs of a step from a minibatch and the targets of the batch."""
        needs_policy = self._kl_target is not None or self.max_kl is not None or is_shown
        clip_range: Tensor | float | None = self.clip_range
        if self._clip_schedule is not None:
            clip_range = torch.tensor(self.clip_range, device=self.device)
        return StepInputs(
            minibatch.alone(),
            minibatch.of(targets.log_probability),
            minibatch.of(targets.advantage),
            minibatch.of(targets.returns),
            minibatch.of(targets.value) if self.vf_clipped_loss else None,
            minibatch.of(targets.policy) if needs_policy else None,
            clip_range,
            None if self.kl_penalty is None else self.kl_penalty.weight.to(self.device),
            minibatch.policy_mask(targets.policy_mask),
        )

    def _total(self, part: StepInputs, losses: Losses, moves_policy: bool, moves_value: bool) -> Tensor:
        terms = []
        if moves_policy:
            terms.append(losses.policy)
            if self.entropy_beta > 0.0:
                terms.append(-self.entropy_beta * losses.entropy)
            if part.kl_weight is not None:
                terms.append(part.kl_weight * losses.kl)
        if moves_value:
            terms.append(self.critic_scale * losses.value)
            if self.l2_coeff > 0.0:
                terms += [self.l2_coeff * parameter.square().sum() for parameter in self._value_parameters]
        return functools.reduce(torch.add, terms)

    def _metrics(
        self, means: Losses, targets: Targets, batch: TrajectoryBatch, epochs: int
    ) -> Mapping[str, Tensor | float]:
        found: dict[str, Tensor | float] = {
            "policy_loss": means.policy,
            "value_loss": means.value,
            "entropy": means.entropy,
            "kl": means.kl,
            "clip_fraction": means.clip_fraction,
            "explained_variance": explained_variance(targets.value, targets.returns, batch.mask),
            "policy_epochs": float(epochs),
        }
        if self.clip_range is not None:
            found["clip_range"] = self.clip_range
        if self.kl_penalty is not None:
            found["kl_coefficient"] = self.kl_penalty.coefficient
        return found


class AdaptiveKL:
    """A coefficient that doubles or halves, Schulman et al. 2017 section 4, arXiv:1707.06347.

    Args:
        target: divergence that an update should have, in nats, > 0; raising it allows larger steps.
        coefficient: the first one, > 0; it soon no longer matters.
    """

    def __init__(self, target: float, coefficient: float = 1.0) -> None:
        self.target = target
        self._coefficient = torch.tensor(coefficient, dtype=torch.float64)

    @property
    def coefficient(self) -> float:
        return float(self._coefficient)

    @property
    def weight(self) -> Tensor:
        return self._coefficient.to(torch.float32)

    def after_update(self, divergence: float) -> None:
        """Follow the divergence, in nats, of an update that is done."""
        if divergence < self.target / 1.5:
            self._coefficient /= 2.0
        elif divergence > self.target * 1.5:
            self._coefficient *= 2.0
        self._coefficient.clamp_(1e-6, 1e6)

    def tensors(self) -> dict[str, Tensor]:
        return {"coefficient": self._coefficient}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self._coefficient.copy_(tensors["coefficient"])
