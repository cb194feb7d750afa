"""R2D2: recurrent Q-learning from replayed sequences, Kapturowski et al. 2019 (openreview.net/forum?id=r1lyTjAqYX).

The network starts from the recurrent state that the agent recorded, brings it up to date over the first `burn_in` rows,
and learns from the rest: double Q-learning with n-step targets of rescaled values (Pohlen et al. 2018,
arXiv:1805.11593). From a prioritized replay, sequences come with importance weights, and their priorities go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from surreal.base import tree
from surreal.base.contracts import ReplayView
from surreal.base.pytorch import Module, check_rank
from surreal.base.ranges import Positive, PositiveInt, PositiveShare, checked
from surreal.base.types import TrajectoryBatch
from surreal.learner.gradients import GradientLearner, one_graph
from surreal.learner.losses import TargetNetwork, among_legal

_RESCALING_EPSILON = 1e-3
#: eta of the paper: a sequence's priority is this much of its largest error, and the rest of the mean one.
_PRIORITY_OF_MAX = 0.9


class Estimate(NamedTuple):
    """Values of the rows behind the burn-in, [T, B] float32 each; the gradient flows through `q` only."""

    q: Tensor  #: of the action taken
    target: Tensor
    mask: Tensor  #: 1 for a step, 0 for a row without one


class R2D2Learner(GradientLearner[Module, TrajectoryBatch]):
    """Learns a recurrent Q-function from the sequences of `PrioritizedSequenceReplay`, or of `SequenceReplay`.

    Args:
        model: recurrent; maps observations [T, B, ...] and a state to `[T, B, n_actions]` values and a state.
        replay: gives the batches; gets priorities of sequences if it wants them.
        n_step: rewards that are summed before the bootstrap value. Raising it propagates rewards faster, and
            trusts the past policy more.
        rescale_values: learn values squashed by h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, for rewards of very
            different sizes.
        huber_delta: error above which the loss grows linearly.
        target_update_period: updates between two copies to the target network.
        target_update_tau: share by which the target network moves to the online one at every update; None: copy by
            period.

    Raises:
        ValueError: the model has no recurrent state, or an option is out of range.
    """

    takes = frozenset({"sequences"})

    @checked
    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        n_step: PositiveInt = 5,
        rescale_values: bool = True,
        huber_delta: Positive = 1.0,
        target_update_period: PositiveInt = 100,
        target_update_tau: PositiveShare | None = None,
        initial_learning_rate: Positive = 1e-4,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, initial_learning_rate=initial_learning_rate, **options)
        if model.state_shape is None:
            raise ValueError("R2D2Learner needs a model with memory: use_lstm: true")
        self.n_step = n_step
        self.rescale_values = rescale_values
        self.huber_delta = huber_delta
        self._target_rule = (target_update_period, target_update_tau)

    def build(self) -> None:
        super().build()
        period, tau = self._target_rule
        self.target = TargetNetwork(self.model, period=period, tau=tau)
        self.keep("target", self.target.network)

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        found = dict(self.update_from(batch, self.is_metrics_due))
        self.target.copy_if_due(self.updates + 1)
        self.send_priorities(batch, found.pop("priority"))
        return found

    @one_graph
    def update_from(self, batch: TrajectoryBatch, is_shown: bool) -> dict[str, Tensor]:
        """Update once; returns a priority [B] of each sequence, and metrics if they are shown."""
        q, target, mask = self.estimate(batch)
        losses = functional.huber_loss(q, target, reduction="none", delta=self.huber_delta) * mask
        weight = batch.extras.get("weight")
        loss = (losses if weight is None else losses * weight).sum() / mask.sum().clamp(min=1.0)
        self.step(loss)
        self.target.follow()
        error = (target - q.detach()).abs() * mask
        mean = error.sum(0) / mask.sum(0).clamp(min=1.0)
        priority = _PRIORITY_OF_MAX * error.amax(0) + (1.0 - _PRIORITY_OF_MAX) * mean
        if not is_shown:
            return {"priority": priority}
        count = mask.sum().clamp(min=1.0)
        return {
            "priority": priority,
            "loss": loss,
            "q_mean": (q * mask).sum() / count,
            "q_max": q.masked_fill(mask == 0.0, -torch.inf).max(),
            "td_error_abs_mean": error.sum() / count,
        }

    def estimate(self, batch: TrajectoryBatch) -> Estimate:
        """Estimate the values of the actions taken after the burn-in, and their targets."""
        begin = batch.burn_in
        q = self._unroll(self.model, batch)
        with torch.no_grad():
            next_q = self._unroll(self.target.network, batch)
            value = self._bootstrap_values(q.detach(), next_q, batch)
            reward, discount, mask = batch.reward[begin:], batch.discount[begin:], batch.mask[begin:]
            if self.rescale_values:
                value = unscale(value)
            target = n_step_returns(reward, discount, mask, value, self.n_step)
            if self.rescale_values:
                target = rescale(target)
        taken = q[:-1].gather(2, batch.action[begin:].long().unsqueeze(2)).squeeze(2)
        return Estimate(taken, target, mask)

    def _unroll(self, model: Module, batch: TrajectoryBatch) -> Tensor:
        """Values [T + 1 - burn_in, B, n_actions] of the rows behind the burn-in."""
        begin, state = batch.burn_in, batch.initial_state["state"]
        if begin:
            with torch.no_grad():
                obs = tree.map_leaves(lambda leaf: leaf[:begin], batch.obs)
                _, state = model(obs, state, batch.is_first[:begin])
        obs = tree.map_leaves(lambda leaf: leaf[begin:], batch.obs)
        values: Tensor = model(obs, state, batch.is_first[begin:])[0]
        return values

    def _bootstrap_values(self, q: Tensor, next_q: Tensor, batch: TrajectoryBatch) -> Tensor:
        """Values [T + 1 - burn_in, B] of the best legal actions, chosen by the online network."""
        legal = batch.extras.get("next_action_mask")
        if legal is not None:
            # What is legal after a step is so in the row behind it. No step bootstraps from the first row.
            legal = torch.cat((torch.ones_like(legal[:1]), legal[batch.burn_in :]))
        return next_q.gather(2, among_legal(q, legal).argmax(2, keepdim=True)).squeeze(2)


def rescale(value: Tensor) -> Tensor:
    """Squash returns: h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018 proposition A.2)."""
    return value.sign() * ((value.abs() + 1.0).sqrt() - 1.0) + _RESCALING_EPSILON * value


def unscale(value: Tensor) -> Tensor:
    """Undo `rescale`."""
    epsilon = _RESCALING_EPSILON
    root = ((1.0 + 4.0 * epsilon * (value.abs() + 1.0 + epsilon)).sqrt() - 1.0) / (2.0 * epsilon)
    return value.sign() * (root.square() - 1.0)


def n_step_returns(reward: Tensor, discount: Tensor, mask: Tensor, value: Tensor, n: int) -> Tensor:
    """Sum the next n rewards and the value after them; fewer at the end of a sequence or an episode.

    G0_t = value_t; Gk_t = reward_t + discount_t G(k-1)_(t+1) for a step, and value_t for a row without one, which holds
    the final observation of an episode. After a terminal step the discount is 0.

    Args:
        reward: [T, B] float32.
        discount: [T, B] float32, gamma * (1 - terminated).
        mask: [T, B] float32, 1 for a step, 0 for a row without one.
        value: [T + 1, B] float32.
        n: >= 1.

    Returns:
        [T, B] float32; call it under `torch.no_grad()`.
    """
    check_rank(2, reward=reward, discount=discount, mask=mask, value=value)
    is_step, returns = mask > 0.0, value
    for _ in range(n):
        returns = torch.cat((torch.where(is_step, reward + discount * returns[1:], value[:-1]), value[-1:]))
    return returns[:-1]
