"""PQN, Q-learning without a replay or a target network: Gallici et al. 2024, arXiv:2407.04811.

Many environments give fresh trajectories, and layer norm (`norm: layer` of the model) keeps the values bounded. The
whole algorithm is `PQNLearner.learn`. It differs from the paper in two ways: the optimizer is Adam rather than
RAdam, and a recurrent model begins with the state that the agent recorded, without steps to bring it up to date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.pytorch import Module
from surreal.base.ranges import NonNegativeInt, Positive, PositiveInt, Share, checked
from surreal.base.types import Obs, TrajectoryBatch
from surreal.learner.advantages import generalised_advantages
from surreal.learner.gradients import GradientLearner, one_graph
from surreal.learner.losses import among_legal
from surreal.learner.on_policy.evaluating import compute
from surreal.learner.on_policy.minibatches import Minibatch, epochs
from surreal.learner.on_policy.policy_losses import mean_of_steps, value_loss
from surreal.model import NoisyQFunction


class PQNLearner(GradientLearner[Module, TrajectoryBatch]):
    """Learns a Q-function from fresh trajectories, by several epochs over each batch.

    Args:
        model: maps observations to `[..., n_actions]` values; with a memory or without.
        replay: gives trajectories, which `surreal.agent.QAgent` makes.
        trace_lambda: lambda of Q(lambda); 1 sums all rewards up to the end of the trajectory, and 0 trusts the value
            after one step. Raising it propagates rewards faster, with more variance.
        epochs: times that each step is learned from; raising it learns more from each env step.
        mini_batch: steps of a minibatch; raising it gives fewer and less noisy steps. With a recurrent model, the
            number is rounded to whole trajectories. None: the whole batch.
        seed: seed of the order of minibatches.

    Raises:
        ValueError: the model has noisy layers, or an option is out of range.
    """

    takes = frozenset({"trajectories"})
    takes_several_steps = True

    @checked
    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        trace_lambda: Share = 0.65,
        epochs: PositiveInt = 2,
        mini_batch: PositiveInt | None = 128,
        initial_learning_rate: Positive = 2.5e-4,
        metrics_interval: PositiveInt = 1,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(
            model, replay, initial_learning_rate=initial_learning_rate, metrics_interval=metrics_interval, **options
        )
        if isinstance(model, NoisyQFunction):
            raise ValueError(f"the model is a {type(model).__name__}, but PQNLearner draws no noise; use a QFunction")
        self.trace_lambda = trace_lambda
        self.epochs = epochs
        self.mini_batch = mini_batch
        self._seed = seed

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        target = self.targets(batch)
        rng = np.random.default_rng((self._seed, self.updates))
        parts = epochs(batch, self.mini_batch, whole=self.model.state_shape is not None, rng=rng)
        shown: list[Mapping[str, Tensor]] = []
        for epoch in range(self.epochs):
            is_shown = self.is_metrics_due and epoch == self.epochs - 1
            for minibatch in parts():
                found = self.update_from(minibatch.alone(), minibatch.of(target), is_shown)
                if is_shown:
                    shown.append(found)
        return {name: torch.stack([found[name].detach() for found in shown]).mean() for name in (shown or [{}])[0]}

    @torch.no_grad()
    def targets(self, batch: TrajectoryBatch) -> Tensor:
        """Compute the returns G of Q(lambda) [T, B] by the values before the update, once for all steps over a batch.

        G_t = reward_t + discount_t * (lambda * G_(t+1) + (1 - lambda) * max_a Q_(t+1)(a)), with G_T = max_a Q_T(a); a
        row without a step holds the final observation of an episode, and G is the maximum there, too. The traces are
        those of Peng and Williams 1994: actions that explored do not cut them.
        """
        q = self.values(batch.obs, batch.initial_state.get("state"), batch.is_first)
        legal = batch.extras.get("next_action_mask")
        if legal is not None:
            # What is legal after a step is so in the row behind it. No step bootstraps from the first row.
            legal = torch.cat((torch.ones_like(legal[:1]), legal))
        value = among_legal(q, legal).amax(2)
        return value[:-1] + generalised_advantages(batch.reward, batch.discount, batch.mask, value, self.trace_lambda)

    @one_graph
    def update_from(self, steps: Minibatch, target: Tensor, is_shown: bool) -> dict[str, Tensor]:
        """Take one step down the squared error of a minibatch; returns metrics if they are shown."""
        q = self.values(steps.obs, steps.state, steps.is_first)
        q = q.gather(-1, steps.action.long().unsqueeze(-1)).squeeze(-1)
        loss = 0.5 * value_loss(q, target, steps.mask)
        self.step(loss)
        if not is_shown:
            return {}
        error = mean_of_steps((target - q.detach()).abs(), steps.mask)
        return {"loss": loss, "q_mean": mean_of_steps(q, steps.mask), "td_error_abs_mean": error}

    def values(self, obs: Obs, state: Tensor | None, is_first: Tensor | None) -> Tensor:
        """Compute the Q values [..., n_actions] of steps, or of sequences after a state, which must be recorded."""
        q: Tensor = compute(self.model, obs, state, is_first)
        return q
