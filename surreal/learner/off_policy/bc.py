"""Behavior cloning: the policy learns to act as the experience does (Pomerleau 1991, doi:10.1162/neco.1991.3.1.88).

It reads no rewards, so it becomes as good as the experience, at best. The whole algorithm is `BCLearner.update_from`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.types import IS_INTERVENTION, Batch, TrajectoryBatch
from surreal.learner.gradients import GradientLearner, one_graph
from surreal.learner.stepping.optimizers import MODEL
from surreal.learner.stepping.reports import normal_values
from surreal.model import DeterministicActorCritic, Distribution, PolicyValue
from surreal.model.base import Model

#: Beginnings of the names of parameters that only values depend on.
_OF_VALUES = ("critic.", "value.", "value_network.")


class Clone(NamedTuple):
    """The model and the experience in the same steps, [B], or [T, B] of sequences."""

    policy: Distribution | Tensor  #: a distribution, or actions [..., n]; with gradient
    action: Tensor  #: taken
    mask: Tensor | None  #: float32, 1 for a step; None: all are


class BCLearner(GradientLearner[Model, Batch | TrajectoryBatch]):
    """Learns to act as the experience does, from transitions or, with a memory, from sequences.

    Args:
        model: gives a policy (`ActorCritic`, `SoftActorCritic`, `DiscreteSoftActorCritic`), or an action
            (`DeterministicActorCritic`). The memory of a recurrent one is empty where a sequence begins, because what
            the experience has was recorded by another network; the rows of the burn-in only fill it.
        replay: gives the batches; weights and priorities are not used.
    """

    def build(self) -> None:
        """Make the optimizer of the policy's parameters; values are not learned."""
        named = self.model.named_parameters()
        self.optimize_group(MODEL, [pair for pair in named if not pair[0].startswith(_OF_VALUES)])

    def learn(self, i: int, batch: Batch | TrajectoryBatch) -> Mapping[str, Tensor | float]:
        if (obs_filter := self.model.obs_filter) is not None:
            with self.model.lock:
                if isinstance(batch, TrajectoryBatch):
                    obs_filter.update(tree.map_leaves(lambda leaf: leaf[:-1], batch.obs), batch.mask > 0.0)
                else:
                    obs_filter.update(batch.obs)
        return self.update_from(batch)

    @one_graph
    def update_from(self, batch: Batch | TrajectoryBatch) -> dict[str, Tensor]:
        """Update once; returns the mean loss, and the policy's entropy if it has one."""
        policy, action, mask = self.clone(batch)
        loss = _mean(cloning_losses(self.model, policy, action), mask)
        self.step(loss)
        if not isinstance(policy, Distribution):
            return {"loss": loss}
        return {"loss": loss, "entropy": _mean(policy.entropy(), mask)}

    def policy_values(self, batch: Batch | TrajectoryBatch) -> Mapping[str, Tensor]:
        policy = self.clone(batch).policy
        return normal_values(policy) if isinstance(policy, Distribution) else {"mu": policy}

    def clone(self, batch: Batch | TrajectoryBatch) -> Clone:
        """Compute what the model would do in each step, after the burn-in."""
        model, begin, mask = self.model, 0, None
        if isinstance(batch, TrajectoryBatch):
            begin, mask = batch.burn_in, batch.mask[batch.burn_in :]
            output = model(tree.map_leaves(lambda leaf: leaf[:-1], batch.obs), None, batch.is_first[:-1])
        else:
            output = model(batch.obs)
        if model.state_shape is not None:
            output = output[0]
        policy = output.policy if isinstance(output, PolicyValue) else output
        if isinstance(policy, Distribution) and "action_mask" in batch.extras:
            policy = policy.masked(batch.extras["action_mask"].to(torch.bool))
        return Clone(policy[begin:], batch.action[begin:], mask)


def cloning_losses(model: Model, policy: Distribution | Tensor, action: Tensor) -> Tensor:
    """Return -log p(action) of each step; of a policy that gives one action, half the squared distance from it.

    The second is the first, up to a constant, of a normal distribution with deviation 1 around the policy's action, for
    actions scaled to [-1, 1].

    Args:
        model: gave the policy.
        policy: a distribution over [...], or actions [..., n]; the gradient flows through it.
        action: [..., *action_shape], taken.

    Returns:
        [...] float32.

    Raises:
        ValueError: the model gives neither.
    """
    if isinstance(policy, Distribution):
        return -policy.log_probability(action)
    if not isinstance(model, DeterministicActorCritic):
        raise ValueError(f"the model is a {type(model).__name__}; what it gives is neither a policy nor an action")
    if policy.shape != action.shape:
        raise ValueError(f"the model gives actions {tuple(policy.shape)}, and those taken are {tuple(action.shape)}")
    scaled = model.bounds.to_scaled
    return 0.5 * (scaled(policy) - scaled(action)).square().sum(-1)


def cloned_interventions(model: Model, policy: Distribution | Tensor, batch: Batch) -> Tensor:
    """Return the mean of `cloning_losses` over a batch in which only interventions count."""
    is_intervention = batch.extras.get(IS_INTERVENTION, torch.zeros_like(batch.reward))
    return torch.mean(cloning_losses(model, policy, batch.action) * is_intervention)


def _mean(values: Tensor, mask: Tensor | None) -> Tensor:
    return values.mean() if mask is None else (mask * values).sum() / mask.sum().clamp(min=1.0)
