"""Deep Q-learning: Mnih et al. 2015 (arXiv:1312.5602) with double Q-learning, n-step targets and importance weights.

The whole algorithm is `DQNLearner.learn`; n and gamma are the replay's, which hands over summed rewards and discounts.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from surreal.learner.base import Learner
from surreal.learner.losses import chosen_q, huber_loss
from surreal.learner.optimizers import GradientStep, check_max_norm, check_optimizer, make_optimizer
from surreal.learner.returns import q_target
from surreal.learner.target import TargetNetwork
from surreal.schedules import LinearSchedule
from surreal.types import Batch
from surreal.utils.pytorch import Module


class DQNLearner(Learner):
    """Learns a Q-function from transitions.

    Args:
        model: maps observations to `[B, n_actions]` values.
        replay: gives the batches; gets |TD error| as priorities if it wants them.
        optimizer: adam or rmsprop.
        initial_learning_rate: > 0; raising it learns faster until it becomes unstable.
        learning_rate_end: where the linear schedule ends, >= 0.
        use_linear_schedule: anneal the learning rate from `initial_learning_rate` to `learning_rate_end`.
        max_global_step: length of that schedule, in what `schedule_step` counts; the rate stays at its end afterwards.
        schedule_step: environment (env steps of the whole run) or update (updates of this learner).
        decay: RMSProp's, in [0, 1).
        epsilon: of the optimizer, > 0; None takes the optimizer's own.
        double: choose the bootstrap action by the online network (less overestimation), not by the target network.
        huber_delta: error from which on the loss grows linearly, > 0; raising it lets large errors weigh more.
        target_update_period: updates between two copies to the target network, >= 1.
        target_update_tau: follow softly instead, at every update, in (0, 1]; None copies by period.
        gradients_norm_clipping: largest global norm of a gradient, > 0; None clips nothing.
        device: auto, cpu or cuda.
        metrics_interval: updates between two readings of the metrics, >= 1.
    """

    def __init__(
        self,
        model: Module,
        replay: object | None = None,
        *,
        optimizer: str = "adam",
        initial_learning_rate: float = 1e-3,
        learning_rate_end: float = 0.0,
        use_linear_schedule: bool = False,
        max_global_step: int | None = None,
        schedule_step: str = "environment",
        decay: float = 0.99,
        epsilon: float | None = None,
        double: bool = True,
        huber_delta: float = 1.0,
        target_update_period: int = 100,
        target_update_tau: float | None = None,
        gradients_norm_clipping: float | None = 10.0,
        device: str = "cpu",
        metrics_interval: int = 100,
    ) -> None:
        super().__init__(model, replay, device=device, metrics_interval=metrics_interval)
        if not huber_delta > 0.0:
            raise ValueError(f"huber_delta is {huber_delta}; it must be > 0")
        if learning_rate_end < 0.0:
            raise ValueError(f"learning_rate_end is {learning_rate_end}; it must be >= 0")
        if schedule_step not in ("environment", "update"):
            raise ValueError(f"schedule_step is {schedule_step!r}; it must be environment or update")
        if use_linear_schedule and (max_global_step is None or max_global_step < 1):
            raise ValueError(f"max_global_step is {max_global_step}; use_linear_schedule needs it to be >= 1")
        self.double = double
        self.huber_delta = huber_delta
        self._schedule: LinearSchedule | None = None
        if use_linear_schedule and max_global_step is not None:
            self._schedule = LinearSchedule(initial_learning_rate, learning_rate_end, max_global_step)
        self._schedule_by_updates = schedule_step == "update"
        self._optimizer = (optimizer, initial_learning_rate, decay, epsilon)
        self._target_rule = (target_update_period, target_update_tau)
        self._clipping = gradients_norm_clipping
        # What is wrong with a setting is said at once, long before the first batch makes these things.
        check_optimizer(optimizer, learning_rate=initial_learning_rate, decay=decay, epsilon=epsilon)
        check_max_norm(gradients_norm_clipping)
        TargetNetwork.check(*self._target_rule)

    def build(self) -> None:
        self.step = GradientStep(self.model, self._make_optimizer, max_norm=self._clipping)
        period, tau = self._target_rule
        self.target = TargetNetwork(self.model, period=period, tau=tau)

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        q, target = self.estimate(batch)
        loss = huber_loss(q, target, self.huber_delta, batch.extras.get("weight"))
        if self._schedule is not None:
            self.step.learning_rate = self._schedule(self.updates if self._schedule_by_updates else self.global_step)
        gradient_norm = self.step.apply(loss)
        self.target.after_update(self.updates + 1)
        if self.wants_priorities:
            self.send_priorities(batch, target - q)
        if not self.is_metrics_due:
            return {}
        metrics: dict[str, Tensor | float] = {
            "loss": loss.detach(),
            "q_mean": q.detach().mean(),
            "td_error_abs_mean": (target - q.detach()).abs().mean(),
            "learning_rate": self.step.learning_rate,
        }
        if gradient_norm is not None:
            metrics["gradient_norm"] = gradient_norm
        return metrics

    def estimate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Estimate the value of the actions taken, and what it should be.

        Returns:
            `(q, target)`, [B] float32 each; the gradient flows through `q` only, and `target - q` is the TD error.
        """
        q = chosen_q(self.model(batch.obs), batch.action)
        with torch.no_grad():
            select_q = self.model(batch.next_obs) if self.double else None
            target = q_target(batch.reward, batch.discount, self.target(batch.next_obs), select_q)
        return q, target

    def parts(self) -> dict[str, dict[str, Tensor]]:
        return {"target": self.target.network.tensors(), "optimizer": self.step.tensors()}

    def expected_parts(self) -> dict[str, dict[str, Tensor]]:
        return {**self.parts(), "optimizer": self.step.expected_tensors()}

    def load_part(self, part: str, tensors: dict[str, Tensor]) -> None:
        if part == "target":
            self.target.network.load_tensors(tensors)
        else:
            self.step.load_tensors(tensors)

    def _make_optimizer(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        name, learning_rate, decay, epsilon = self._optimizer
        return make_optimizer(name, parameters, learning_rate=learning_rate, decay=decay, epsilon=epsilon)
