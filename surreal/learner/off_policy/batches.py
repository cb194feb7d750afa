"""Batches of off-policy actor-critics: observations are normalized, and critics can value two actions at once.

The second is CrossQ, Bhatt et al. 2024 (arXiv:1902.05605): critics see the actions taken and those that follow in one
batch. Batch norms then normalize by the statistics of both, and count both. Without it, actions that follow are
computed with running statistics of actions taken, which are differently distributed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.types import Batch
from surreal.model.norms import batch_statistics
from surreal.model.off_policy.actor_critics import OffPolicyActorCritic
from surreal.model.off_policy.critics import ContinuousCritics


def normalized(model: OffPolicyActorCritic, batch: Batch) -> Batch:
    """Count a batch into the model's filter of observations, if it has one, and return the batch as networks see it.

    The replay keeps observations as they are, so each batch is normalized by the statistics of its time (RSNorm,
    Lee et al. 2024, arXiv:2410.09754).
    """
    if model.obs_filter is None:
        return batch
    with model.lock:
        model.obs_filter.update(batch.obs)
    return batch._replace(obs=model.obs_filter.forward(batch.obs), next_obs=model.obs_filter.forward(batch.next_obs))


def joint_outputs(
    critic: ContinuousCritics, target: ContinuousCritics, batch: Batch, next_action: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the critics' outputs for the actions taken, and the target's for the next ones, from one batch of both.

    Critics without a target network are their own target, and compute once. Both outputs are [critics, B, output.size]
    float32; the gradient flows through the first only.
    """
    obs, action = tree.map_together(torch.cat, [batch.obs, batch.next_obs]), torch.cat((batch.action, next_action))
    with batch_statistics(critic):
        outputs, following = critic.outputs(obs, action).chunk(2, 1)
    if target is not critic:
        with torch.no_grad(), batch_statistics(target):
            following = target.outputs(obs, action).chunk(2, 1)[1]
    return outputs, following.detach()
