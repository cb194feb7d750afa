"""Trust region policy optimization: Schulman et al. 2015, arXiv:1502.05477, with generalized advantages.

The whole algorithm is `TRPOLearner.learn`: the value by gradient steps, the policy by `TRPOLearner.move_policy`, which
is appendix C of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegativeInt, Positive, PositiveInt, Share, checked
from surreal.base.types import Gradients, TrajectoryBatch
from surreal.learner.gradients import GradientLearner
from surreal.learner.on_policy.evaluating import Targets, evaluate, filtered, make_targets, policy_mask
from surreal.learner.on_policy.minibatches import Minibatch, concatenate, epochs, everything
from surreal.learner.on_policy.policy_losses import (
    explained_variance,
    importance_policy_loss,
    mean_of_steps,
    value_loss,
)
from surreal.learner.on_policy.trust_region import conjugate_gradient, shorter_fraction
from surreal.learner.stepping.optimizers import MODEL
from surreal.learner.stepping.reports import normal_values
from surreal.model.base import Model

_VALUE = "value"
#: How far parameters are moved to measure the slope of a gradient.
_PROBE = 1e-2


class Moved(NamedTuple):
    """Result of one step of the policy."""

    loss: float  #: the surrogate's, negative where it improved
    kl: float  #: from the policy before the step, nats
    fraction: float  #: of the step that the line search accepted, 0 if none
    gradient_norm: Tensor


class TRPOLearner(GradientLearner[Model, TrajectoryBatch]):
    """Learns a policy by natural gradient steps of bounded divergence, and its value by usual ones.

    The options of the optimizer are the value's; the policy has no learning rate.

    Args:
        model: gives a `PolicyValue`, with its own network for the value (`value_hidden_sizes`).
        replay: gives trajectories, with the log-probabilities that `surreal.agent.PolicyAgent` records.
        max_kl: divergence of a step of the policy at most, in nats; raising it allows larger steps.
        damping: number added to the diagonal of the Fisher matrix; raising it makes steps shorter if the policy hardly
            changes, and the solution more stable.
        cg_iterations: iterations of conjugate gradients; raising it gets closer to the natural gradient, at the cost of
            one pass each.
        line_search_steps: number of shorter steps that are tried before the policy is left unchanged.
        line_search_decay: length of each of these steps relative to the one before, with `Origin`.
        linesearch_type: Origin: each try is `line_search_decay` of the one before. Adaptive: the next try is computed
            from divergence and surrogate of the last one, which needs fewer tries.
        subtype: computation of the divergence's curvature. trpo-d2: second derivatives. trpo-d1: the difference of two
            gradients, for networks without second derivatives; slightly less exact.
        timesteps_per_batch: steps that are gathered from several batches before an update; None: update from each
            batch.
        episodes_per_batch: ended episodes that are gathered before an update; None likewise. If a learner dies,
            gathered batches are lost.
        value_func_iterations: epochs of the value over a batch.
        mini_batch: steps of a minibatch of the value; None: the whole batch.
        gae_lambda: lambda of generalized advantages; raising it has more variance and less bias.
        normalize_advantage: whether to shift and scale the advantages of a batch to mean 0 and deviation 1.
        seed: seed of the order of minibatches.
    """

    takes = frozenset({"trajectories"})
    skipped_limit = 3
    only_steps_down_gradients = False  # the policy's step is along a natural gradient, as long as a search finds

    @checked
    def __init__(
        self,
        model: Model,
        replay: ReplayView | None = None,
        *,
        max_kl: Positive = 0.01,
        damping: Positive = 0.1,
        cg_iterations: PositiveInt = 15,
        line_search_steps: PositiveInt = 10,
        line_search_decay: Share = 0.8,
        linesearch_type: Literal["Origin", "Adaptive"] = "Origin",
        subtype: str = "trpo-d2",
        timesteps_per_batch: PositiveInt | None = None,
        episodes_per_batch: PositiveInt | None = None,
        value_func_iterations: PositiveInt = 10,
        mini_batch: PositiveInt | None = 128,
        gae_lambda: Share = 0.98,
        normalize_advantage: bool = True,
        metrics_interval: PositiveInt = 1,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, metrics_interval=metrics_interval, **options)
        if model.value_hiddens is None:
            raise ValueError("the model's value shares the policy's network; give it its own (value_hidden_sizes)")
        if subtype not in ("trpo-d1", "trpo-d2"):
            other = "; for PPO, set learner.class to surreal.learner.PPOLearner" if subtype == "ppo" else ""
            raise ValueError(f"subtype is {subtype!r}; it must be trpo-d1 or trpo-d2{other}")
        if timesteps_per_batch is not None and episodes_per_batch is not None:
            raise ValueError("timesteps_per_batch and episodes_per_batch are both set; leave one out")
        self.max_kl = max_kl
        self.damping = damping
        self.cg_iterations = cg_iterations
        self.line_search_steps = line_search_steps
        self.line_search_decay = line_search_decay
        self._is_adaptive = linesearch_type == "Adaptive"
        self._is_first_order = subtype == "trpo-d1"
        self._timesteps_per_batch = timesteps_per_batch
        self._episodes_per_batch = episodes_per_batch
        self._gathered: list[TrajectoryBatch] = []
        self.value_func_iterations = value_func_iterations
        self.mini_batch = mini_batch
        self.gae_lambda = gae_lambda
        self.normalize_advantage = normalize_advantage
        self._seed = seed

    def build(self) -> None:
        named = list(self.model.named_parameters())
        self.optimize_group(_VALUE, [(name, tensor) for name, tensor in named if name.startswith("value_network.")])
        self._policy = {name: tensor for name, tensor in named if not name.startswith("value_network.")}
        self._policy_parameters = list(self._policy.values())

    def parameter_groups(self) -> Mapping[str, Mapping[str, Tensor]]:
        return {MODEL: self._policy, **super().parameter_groups()}

    def policy_values(self, batch: TrajectoryBatch) -> Mapping[str, Tensor]:
        return normal_values(evaluate(self.model, batch).policy)

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        """Gather batches until there is enough, then do one update."""
        self._gathered.append(batch)
        if not self._has_enough():
            return {}
        batch, self._gathered = concatenate(self._gathered), []
        with filtered(self.model, batch) as scaled:
            return self.learn_all(scaled)

    def _has_enough(self) -> bool:
        if self._timesteps_per_batch is not None:
            return sum(int(batch.mask.sum()) for batch in self._gathered) >= self._timesteps_per_batch
        if self._episodes_per_batch is not None:
            ended = sum(int((batch.terminated | batch.truncated).sum()) for batch in self._gathered)
            return ended >= self._episodes_per_batch
        return True

    def learn_all(self, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        """Update policy and value once, and return the metrics."""
        targets = make_targets(
            self.model, batch, gae_lambda=self.gae_lambda, normalize_advantage=self.normalize_advantage
        )
        rng = np.random.default_rng((self._seed, self.updates))
        is_recurrent = self.model.state_shape is not None
        moved = self.move_policy(everything(batch, whole=is_recurrent), targets)
        critic_loss = torch.zeros(())
        parts = epochs(batch, self.mini_batch, whole=is_recurrent, rng=rng)
        for _ in range(self.value_func_iterations):
            for part in parts():
                _, value = part.compute(self.model)
                critic_loss = value_loss(value, part.of(targets.returns), part.mask)
                self.step(critic_loss, _VALUE)
        return {
            "policy_loss": moved.loss,
            "value_loss": critic_loss,
            "entropy": mean_of_steps(targets.policy.entropy(), policy_mask(batch)),
            "kl": moved.kl,
            "step_fraction": moved.fraction,
            "gradient_norm": moved.gradient_norm,
            "explained_variance": explained_variance(targets.value, targets.returns, batch.mask),
        }

    def move_policy(self, part: Minibatch, targets: Targets) -> Moved:
        """Step along the natural gradient, while the divergence is allowed and the surrogate improves."""
        loss, kl = self.surrogate(part, targets)
        gradients = torch.autograd.grad(loss, self._policy_parameters, retain_graph=True)
        self.show_gradients(Gradients(MODEL, dict(zip(self._policy, gradients, strict=True))))
        gradient = _flat(gradients)
        fisher_product = self._first_order(part, targets) if self._is_first_order else self._second_order(kl)
        direction = conjugate_gradient(fisher_product, -gradient, iterations=self.cg_iterations)
        length = (2.0 * self.max_kl / (direction @ fisher_product(direction))).sqrt()
        step = length * direction
        self.skipped.note(MODEL, step.norm())
        if bool(step.isfinite().all()):
            found = self._search(part, targets, step, float(loss.detach()), float(gradient @ step))
            if found is not None:
                return Moved(*found, gradient.norm())
        return Moved(float(loss.detach()), 0.0, 0.0, gradient.norm())

    def _search(
        self, part: Minibatch, targets: Targets, step: Tensor, loss: float, slope: float
    ) -> tuple[float, float, float] | None:
        """Take the largest allowed fraction of a step; return loss, divergence and fraction, or None for no step."""
        before, fraction = _flat(self._policy_parameters).detach(), 1.0
        for _ in range(self.line_search_steps):
            self._replace(before + fraction * step)
            with torch.no_grad():
                new_loss, kl = (float(found) for found in self.surrogate(part, targets))
            if new_loss < loss and kl <= self.max_kl:
                return new_loss, kl, fraction
            if self._is_adaptive:
                gain = new_loss - loss
                fraction = shorter_fraction(fraction, gain=gain, slope=slope, kl=kl, max_kl=self.max_kl)
            else:
                fraction *= self.line_search_decay
        self._replace(before)
        return None

    def _second_order(self, kl: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the product of the damped Fisher matrix with a vector, by differentiating the divergence twice."""
        parameters = self._policy_parameters
        slope = _flat(torch.autograd.grad(kl, parameters, create_graph=True))

        def product(vector: Tensor) -> Tensor:
            image = _flat(torch.autograd.grad(slope @ vector, parameters, retain_graph=True))
            return image + self.damping * vector

        return product

    def _first_order(self, part: Minibatch, targets: Targets) -> Callable[[Tensor], Tensor]:
        """Return the same, by the difference of the divergence's gradient a little to both sides."""
        parameters, before = self._policy_parameters, _flat(self._policy_parameters).detach()

        def slope(at: Tensor) -> Tensor:
            self._replace(at)
            _, kl = self.surrogate(part, targets)
            return _flat(torch.autograd.grad(kl, parameters))

        def product(vector: Tensor) -> Tensor:
            length = float(_PROBE / vector.norm().clamp(min=1e-8))
            image = (slope(before + length * vector) - slope(before - length * vector)) / (2.0 * length)
            self._replace(before)
            return image + self.damping * vector

        return product

    def surrogate(self, part: Minibatch, targets: Targets) -> tuple[Tensor, Tensor]:
        """Loss of the policy as it is now, and its divergence from the one before the update: scalars."""
        policy, _ = part.compute(self.model)
        log_ratio = policy.log_probability(part.action) - part.of(targets.log_probability)
        chosen = part.policy_mask(targets.policy_mask)
        if chosen is not None:
            log_ratio = log_ratio.masked_fill(chosen == 0.0, 0.0)
        kl = mean_of_steps(part.of(targets.policy).kl(policy), chosen)
        return importance_policy_loss(log_ratio, part.of(targets.advantage), chosen), kl

    def _replace(self, vector: Tensor) -> None:
        with self.model.lock, torch.no_grad():
            parts = vector.split_with_sizes([parameter.numel() for parameter in self._policy_parameters])
            for parameter, part in zip(self._policy_parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
