"""DQN with quantile regression: Dabney et al. 2018 (arXiv:1710.10044)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from surreal.base.contracts import ReplayView
from surreal.base.pytorch import Module, check_rank
from surreal.base.types import Batch
from surreal.learner.gradients import one_graph
from surreal.learner.losses import among_legal
from surreal.learner.off_policy.dqn import DQNLearner
from surreal.model import QuantileQFunction


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


def quantile_huber_loss(quantiles: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """Quantile regression with Huber's loss in place of the absolute error (eq. 10).

    The loss of a row is the sum over quantiles i of the mean over targets j of |tau_i - 1{u < 0}| L(u) / kappa, with
    u = target_j - quantile_i, tau_i = (i + 0.5) / N, and L Huber's loss, quadratic up to kappa.

    Args:
        quantiles: [B, N] float32; the gradient flows through it.
        target: [B, M] float32, without gradient.
        kappa: > 0; raising it makes quantiles more like means.

    Returns:
        [B] float32.
    """
    check_rank(2, quantiles=quantiles, target=target)
    error = target[:, None, :] - quantiles[:, :, None]
    number = quantiles.shape[1]
    tau = (torch.arange(number, device=quantiles.device, dtype=torch.float32) + 0.5) / number
    scale = (tau[:, None] - (error.detach() < 0.0).to(torch.float32)).abs()
    huber = functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=kappa)
    return (scale * huber / kappa).mean(2).sum(1)


def _chosen(quantiles: Tensor, action: Tensor) -> Tensor:
    """Pick those of one action, [B, N] of [B, num_actions, N]."""
    return quantiles[torch.arange(len(action), device=action.device), action]
