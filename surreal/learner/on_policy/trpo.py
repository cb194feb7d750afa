"""Trust region policy optimisation: Schulman et al. 2015, arXiv:1502.05477, with generalised advantages.

The whole algorithm is `TRPOLearner.learn`: the value by gradient steps, the policy by `TRPOLearner.move_policy`, which
is appendix C of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from surreal.learner.base import ReplayView
from surreal.learner.gradients import GradientLearner
from surreal.learner.on_policy.conjugate_gradient import conjugate_gradient
from surreal.learner.on_policy.evaluating import Targets, count_observations, make_targets, scale_rewards
from surreal.learner.on_policy.minibatches import Minibatch, minibatches
from surreal.learner.on_policy.policy_losses import (
    explained_variance,
    importance_policy_loss,
    mean_of_steps,
    value_loss,
)
from surreal.learner.option_checks import check_positive, check_shares
from surreal.types import TrajectoryBatch
from surreal.utils.pytorch import Module

_VALUE = "value"


class Moved(NamedTuple):
    """What became of one step of the policy."""

    loss: float  #: the surrogate's, negative where it improved
    kl: float  #: from the policy before the step, nats
    fraction: float  #: of the step that the line search accepted, 0 if none
    gradient_norm: Tensor


class TRPOLearner(GradientLearner):
    """Learns a policy by natural gradient steps of bounded divergence, and its value by usual ones.

    The options of the optimizer are the value's; the policy has no learning rate.

    Args:
        model: gives a `PolicyValue`, with a network of its own for the value (`value_hidden_sizes`).
        replay: gives trajectories, with the log-probabilities that `surreal.agent.PolicyAgent` records.
        max_kl: divergence that a step of the policy may have, in nats, > 0; raising it allows larger steps.
        damping: added to the Fisher matrix's diagonal, > 0; raising it makes steps shorter where the policy hardly
            changes, and the solution more stable.
        cg_iterations: of the conjugate gradients, >= 1; raising it comes nearer to the natural gradient, at the cost of
            a pass each.
        line_search_steps: shorter steps that are tried before the policy stays as it is, >= 1.
        line_search_decay: length of each of them to the one before, in [0, 1].
        value_func_iterations: epochs of the value over a batch, >= 1.
        mini_batch: steps of a minibatch of the value, >= 1; None: the whole batch.
        gae_lambda: of generalised advantages, in [0, 1]; raising it has more variance and less bias.
        normalize_advantage: shift and scale the advantages of a batch to mean 0 and deviation 1.
        seed: of the order of minibatches.
        options: see `GradientLearner`.
    """

    takes = frozenset({"trajectories"})

    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        max_kl: float = 0.01,
        damping: float = 0.1,
        cg_iterations: int = 15,
        line_search_steps: int = 10,
        line_search_decay: float = 0.8,
        value_func_iterations: int = 10,
        mini_batch: int | None = 128,
        gae_lambda: float = 0.98,
        normalize_advantage: bool = True,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, **options)
        check_positive(
            max_kl=max_kl,
            damping=damping,
            cg_iterations=cg_iterations,
            line_search_steps=line_search_steps,
            value_func_iterations=value_func_iterations,
            mini_batch=mini_batch,
        )
        check_shares(line_search_decay=line_search_decay, gae_lambda=gae_lambda)
        if getattr(model, "value_hiddens", None) is None:
            raise ValueError("the model's value shares the policy's network; give it its own (value_hidden_sizes)")
        self.max_kl = max_kl
        self.damping = damping
        self.cg_iterations = cg_iterations
        self.line_search_steps = line_search_steps
        self.line_search_decay = line_search_decay
        self.value_func_iterations = value_func_iterations
        self.mini_batch = mini_batch
        self.gae_lambda = gae_lambda
        self.normalize_advantage = normalize_advantage
        self._seed = seed

    def build(self) -> None:
        named = list(self.model.named_parameters())
        self.optimize_group(_VALUE, [(name, tensor) for name, tensor in named if name.startswith("value_network.")])
        self._policy_parameters = [tensor for name, tensor in named if not name.startswith("value_network.")]

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        batch = scale_rewards(self.model, batch)
        targets = make_targets(
            self.model, batch, gae_lambda=self.gae_lambda, normalize_advantage=self.normalize_advantage
        )
        rng = np.random.default_rng((self._seed, self.updates))
        is_recurrent = self.model.state_shape is not None
        (everything,) = minibatches(batch, None, whole=is_recurrent, rng=rng)
        moved = self.move_policy(everything, targets)
        critic_loss = torch.zeros(())
        for _ in range(self.value_func_iterations):
            for part in minibatches(batch, self.mini_batch, whole=is_recurrent, rng=rng):
                _, value = part.compute(self.model)
                critic_loss = value_loss(value, targets.returns[part.index], part.mask)
                self.step(critic_loss, _VALUE)
        count_observations(self.model, batch)
        if not self.is_metrics_due:
            return {}
        return {
            "policy_loss": moved.loss,
            "value_loss": critic_loss,
            "entropy": mean_of_steps(targets.policy.entropy(), batch.mask),
            "kl": moved.kl,
            "step_fraction": moved.fraction,
            "gradient_norm": moved.gradient_norm,
            "explained_variance": explained_variance(targets.value, targets.returns, batch.mask),
        }

    def move_policy(self, part: Minibatch, targets: Targets) -> Moved:
        """Go along the natural gradient, as far as the divergence may be and the surrogate improves."""
        parameters = self._policy_parameters
        loss, kl = self.surrogate(part, targets)
        gradient = _flat(torch.autograd.grad(loss, parameters, retain_graph=True))
        kl_gradient = _flat(torch.autograd.grad(kl, parameters, create_graph=True))

        def fisher_product(vector: Tensor) -> Tensor:
            product = _flat(torch.autograd.grad(kl_gradient @ vector, parameters, retain_graph=True))
            return product + self.damping * vector

        direction = conjugate_gradient(fisher_product, -gradient, iterations=self.cg_iterations)
        length = (2.0 * self.max_kl / (direction @ fisher_product(direction))).sqrt()
        step, before = length * direction, _flat(parameters).detach()
        self.skipped.note(step.norm())
        self.skipped.check()
        if bool(step.isfinite().all()):
            fraction = 1.0
            for _ in range(self.line_search_steps):
                self._replace(before + fraction * step)
                with torch.no_grad():
                    new_loss, new_kl = self.surrogate(part, targets)
                if new_loss < loss.detach() and new_kl <= self.max_kl:
                    return Moved(float(new_loss), float(new_kl), fraction, gradient.norm())
                fraction *= self.line_search_decay
            self._replace(before)
        return Moved(float(loss.detach()), 0.0, 0.0, gradient.norm())

    def surrogate(self, part: Minibatch, targets: Targets) -> tuple[Tensor, Tensor]:
        """Loss of the policy as it is now, and its divergence from the one before the update: scalars."""
        policy, _ = part.compute(self.model)
        log_ratio = policy.log_probability(part.action) - targets.log_probability[part.index]
        kl = mean_of_steps(targets.policy[part.index].kl(policy), part.mask)
        return importance_policy_loss(log_ratio, targets.advantage[part.index], part.mask), kl

    def _replace(self, vector: Tensor) -> None:
        with self.model.lock, torch.no_grad():
            parts = vector.split_with_sizes([parameter.numel() for parameter in self._policy_parameters])
            for parameter, part in zip(self._policy_parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
