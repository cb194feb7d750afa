"""Evaluation of a policy and its value on trajectories: the one place where on-policy learners call their model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.pytorch import Module
from surreal.base.types import IS_INTERVENTION, Obs, TrajectoryBatch
from surreal.learner.advantages import generalised_advantages
from surreal.learner.on_policy.policy_losses import normalise
from surreal.model import Distribution
from surreal.model.base import Model


class Evaluated(NamedTuple):
    """Results for trajectories [T, B]."""

    policy: Distribution  #: [T, B] over the legal actions
    log_probability: Tensor  #: [T, B] float32 of the actions taken; 0 where something else chose them
    value: Tensor  #: [T + 1, B] float32 of all observations, the last one and final ones included


def evaluate(model: Module, batch: TrajectoryBatch) -> Evaluated:
    """Compute a whole batch; a recurrent model begins with the state that the agent recorded."""
    policy, value = compute(model, batch.obs, batch.initial_state.get("state"), batch.is_first)
    policy = legal(policy[:-1], batch.extras.get("action_mask"))
    return Evaluated(policy, of_policy(batch, policy.log_probability(batch.action)), value)


def policy_mask(batch: TrajectoryBatch) -> Tensor:
    """Return 1 for steps whose action the policy chose, [T, B] float32: the mask, where nothing else chose any."""
    is_intervention = batch.extras.get(IS_INTERVENTION)
    mask: Tensor = batch.mask if is_intervention is None else batch.mask * ~is_intervention
    return mask


def chosen_by_policy(batch: TrajectoryBatch) -> Tensor | None:
    """Return `policy_mask`, or None where nothing else can choose actions."""
    return policy_mask(batch) if IS_INTERVENTION in batch.extras else None


def of_policy(batch: TrajectoryBatch, column: Tensor) -> Tensor:
    """Return a column [T, B] with 0 at steps whose action something else chose.

    What replaced actions is a part of the environment that the value predicts: importance ratios are 1 there, and the
    policy learns nothing from these steps.
    """
    is_intervention = batch.extras.get(IS_INTERVENTION)
    return column if is_intervention is None else column.masked_fill(is_intervention, 0.0)


class Targets(NamedTuple):
    """Targets of several steps over one batch, [T, B]."""

    policy: Distribution  #: before the update
    log_probability: Tensor  #: of the actions, under the policy that steps are clipped around: the one that acted
    value: Tensor  #: before the update
    advantage: Tensor
    returns: Tensor
    policy_mask: Tensor | None = None  #: `policy_mask`, if something else chose some actions


@torch.no_grad()
def make_targets(model: Module, batch: TrajectoryBatch, *, gae_lambda: float, normalize_advantage: bool) -> Targets:
    """Compute advantages and returns by the value before the update, once for all steps over a batch."""
    policy, _, value = evaluate(model, batch)
    advantage = generalised_advantages(batch.reward, batch.discount, batch.mask, value, gae_lambda)
    returns = advantage + value[:-1]
    if normalize_advantage:
        advantage = normalise(advantage, policy_mask(batch))
    old = recorded(batch, "log_probability")
    return Targets(policy.frozen(), old, value[:-1], advantage, returns, chosen_by_policy(batch))


def compute(model: Module, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
    """Call a model on [T, B, *obs_shape], or [N, *obs_shape] without a memory; returns its output without a state.

    A recurrent model gets the state [B, *state_shape] before the first row, which is cleared before rows of `is_first`.
    Raises `ValueError` if the agent recorded none.
    """
    if model.state_shape is None:
        return model(obs)
    if state is None:
        raise ValueError("the model is recurrent, but experience has no state; agents record it with Agent.compute")
    output, _ = model(obs, state, is_first)
    return output


def legal(policy: Distribution, action_mask: Tensor | None) -> Distribution:
    """Forbid the actions that were illegal, as the agent did; `action_mask` [..., n] bool, None: all are legal."""
    return policy if action_mask is None else policy.masked(action_mask.to(torch.bool))


@contextmanager
def filtered(
    model: Model, batch: TrajectoryBatch, share_counts: Callable[[], object] = lambda: None
) -> Iterator[TrajectoryBatch]:
    """Count a batch into the model's filters of observations and rewards, as far as it has them, around an update.

    Observations are counted after the update: during it, the model must see them as the agents did that had its
    version. The first batch is counted before, because an empty filter passes observations as they are: what the first
    update learned would not fit those that the policy sees from then on.

    Yields:
        The batch, with its rewards scaled.
    """
    obs_filter, return_filter = model.obs_filter, model.return_filter
    is_step, obs = batch.mask > 0.0, tree.map_leaves(lambda leaf: leaf[:-1], batch.obs)
    is_first = obs_filter is not None and obs_filter.is_empty
    with model.lock:
        if return_filter is not None:
            return_filter.update(batch.reward, batch.discount, is_step, batch.extras.get("carried_return"))
        if obs_filter is not None and is_first:
            obs_filter.update(obs, is_step)
        if is_first or return_filter is not None:
            share_counts()
    yield batch if return_filter is None else batch._replace(reward=return_filter(batch.reward))
    if obs_filter is not None and not is_first:
        with model.lock:
            obs_filter.update(obs, is_step)


def recorded(batch: TrajectoryBatch, name: str) -> Tensor:
    """Return a column [T, B] that the agent recorded, else raise `ValueError`: `log_probability` of the action under
    its policy, or `value`.

    `log_probability` is 0 where something else chose the action: the agent recorded that of another one.
    """
    if name not in batch.extras:
        raise ValueError(f"experience has no {name}, which this learner needs; surreal.agent.PolicyAgent records it")
    column: Tensor = batch.extras[name]
    return of_policy(batch, column) if name == "log_probability" else column
