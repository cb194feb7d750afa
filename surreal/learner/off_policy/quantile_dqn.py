"""DQN with quantile regression: Dabney et al. 2018 (arXiv:1710.10044)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.pytorch import Module
from surreal.base.types import Batch
from surreal.learner.gradients import one_graph
from surreal.learner.losses import among_legal
from surreal.learner.off_policy.dqn import DQNLearner
from surreal.model import QuantileQFunction
from surreal.model.off_policy.critic_outputs import quantile_huber_loss


class QuantileDQNLearner(DQNLearner):
    """Learns the quantiles of each action's return, from transitions.

    Args:
        model: a `QuantileQFunction`, or a `NoisyQuantileQFunction`, whose noise is drawn in each update.
        replay: gives the batches; gets the loss of each transition as priorities if it wants them.
        options: see `DQNLearner`; `huber_delta` is the paper's kappa.
    """

    def __init__(self, model: Module, replay: ReplayView | None = None, **options: Any) -> None:
        super().__init__(model, replay, **options)
        if not isinstance(model, QuantileQFunction):
            raise ValueError(f"the model is a {type(model).__name__}; it must be a QuantileQFunction")

    @one_graph
    def update_from(self, batch: Batch, is_shown: bool) -> dict[str, Tensor]:
        quantiles, target = self.estimate(batch)
        losses = quantile_huber_loss(quantiles, target, self.huber_delta)
        weight = batch.extras.get("weight")
        loss = losses.mean() if weight is None else torch.dot(losses, weight) / len(weight)
        self.step(loss)
        self.target.follow()
        found = {"td_error": losses.detach()}
        if not is_shown:
            return found
        q = quantiles.mean(-1)
        return {**found, "loss": loss, "q_mean": q.mean(), "q_max": q.max()}

    def estimate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Estimate the quantiles of the actions taken, and a sample of the target distribution.

        Returns:
            `(quantiles, target)`, [B, num_quantiles] float32 each; the gradient flows through `quantiles` only.
        """
        online, frozen = (cast(QuantileQFunction, network) for network in (self.model, self.target.network))
        quantiles = _chosen(online.quantiles(batch.obs), batch.action)
        with torch.no_grad():
            following = frozen.quantiles(batch.next_obs)
            choosing = online(batch.next_obs) if self.double else following.mean(-1)
            best = _chosen(following, among_legal(choosing, batch.extras.get("next_action_mask")).argmax(1))
            return quantiles, torch.addcmul(batch.reward[:, None], batch.discount[:, None], best)


def _chosen(quantiles: Tensor, action: Tensor) -> Tensor:
    """Pick those of one action, [B, N] of [B, num_actions, N]."""
    return quantiles[torch.arange(len(action), device=action.device), action]
