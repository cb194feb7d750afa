"""Deep Q-learning: Mnih et al. 2015 (arXiv:1312.5602) with double Q-learning, n-step targets and importance weights.

The whole algorithm is `DQNLearner.update_from`. n and gamma belong to the replay, which hands over summed rewards and
discounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.pytorch import Module
from surreal.base.ranges import NonNegativeInt, Positive, PositiveInt, PositiveShare, checked
from surreal.base.types import Batch
from surreal.learner.gradients import one_graph
from surreal.learner.losses import TargetNetwork, UpdateNoise, chosen_q, huber_loss, q_target
from surreal.learner.off_policy.transitions import TransitionLearner
from surreal.model import NoisyQFunction


class DQNLearner(TransitionLearner[Module]):
    """Learns a Q-function from transitions.

    Args:
        model: maps observations to `[B, n_actions]` values.
        replay: source of the batches; it receives |TD error| as priorities if it uses them.
        double: whether the online network chooses the bootstrap action (less overestimation), or the target network.
        huber_delta: error above which the loss grows linearly; raising it gives large errors more weight.
        target_update_period: updates between two copies to the target network.
        target_update_tau: share by which the target network moves to the online one at every update; None: copy by
            period.
        seed: seed of the noise of a `NoisyQFunction`.
    """

    @checked
    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        double: bool = True,
        huber_delta: Positive = 1.0,
        target_update_period: PositiveInt = 100,
        target_update_tau: PositiveShare | None = None,
        initial_learning_rate: Positive = 1e-4,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, initial_learning_rate=initial_learning_rate, **options)
        self.double = double
        self.huber_delta = huber_delta
        self._noise = UpdateNoise(seed, self.device)
        self._target_rule = (target_update_period, target_update_tau)

    def build(self) -> None:
        super().build()
        period, tau = self._target_rule
        self.target = TargetNetwork(self.model, period=period, tau=tau)
        self.keep("target", self.target.network)

    def renew_noise(self) -> None:
        """Draw separate noise for each noisy network; for the beginning of `learn`."""
        generator = None
        for network in (self.model, self.target.network):
            if isinstance(network, NoisyQFunction):
                generator = generator or self._noise.of(self.updates)
                network.draw_noise(generator)

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        self.renew_noise()
        found = dict(self.update_from(batch, self.is_metrics_due))
        self.target.copy_if_due(self.updates + 1)
        self.send_priorities(batch, found.pop("td_error"))
        return found

    @one_graph
    def update_from(self, batch: Batch, is_shown: bool) -> dict[str, Tensor]:
        """Update once; returns the TD error [B], and metrics if they are shown."""
        q, target = self.estimate(batch)
        loss = huber_loss(q, target, self.huber_delta, batch.extras.get("weight"))
        self.step(loss)
        self.target.follow()
        error = target - q.detach()
        if not is_shown:
            return {"td_error": error}
        metrics = {"loss": loss, "q_mean": q.mean(), "q_max": q.max(), "td_error_abs_mean": error.abs().mean()}
        return {"td_error": error, **metrics}

    def estimate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Estimate the value of the actions taken, and its target.

        Returns:
            `(q, target)`, [B] float32 each; the gradient flows through `q` only, and `target - q` is the TD error.
        """
        q = chosen_q(self.model(batch.obs), batch.action)
        with torch.no_grad():
            select_q = self.model(batch.next_obs) if self.double else None
            legal = batch.extras.get("next_action_mask")
            target = q_target(batch.reward, batch.discount, self.target(batch.next_obs), select_q, legal)
        return q, target
