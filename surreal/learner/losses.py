"""Losses, targets and advantages: pure, rank-checked, tested against naive loops.

A per-sample quantity is `[B]`, never `[B, 1]`: subtracting one from the other would silently give `[B, B]`.

The replay makes the n-step sum (`Batch.reward`). `Batch.discount` is gamma^h * (1 - terminated) for the h steps summed,
so a truncated episode bootstraps and a terminated one does not. In trajectories [T, B], a row where `mask` is 0 holds
the final observation of an episode: a truncated episode is bootstrapped from its value.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from surreal.base.pytorch import Module, check_rank
from surreal.base.ranges import NonNegativeInt, PositiveInt, PositiveShare, checked
from surreal.learner.advantages import VTrace, bootstrapped_returns, generalised_advantages, vtrace

__all__ = [
    "TargetNetwork", "UpdateNoise", "VTrace", "among_legal", "bootstrapped_returns", "check_rank", "chosen_q",
    "critic_loss", "generalised_advantages", "huber_loss", "l2_penalty", "q_target", "vtrace",
]  # fmt: skip

_MASK = (1 << 64) - 1


def huber_loss(prediction: Tensor, target: Tensor, delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """Mean Huber loss: 0.5 e^2 if |e| <= delta, else delta (|e| - 0.5 delta), with e = target - prediction.

    Mnih et al. 2015 clip the error to [-1, 1], which is the gradient of delta = 1. With importance weights the mean is
    over weight * loss (Schaul et al. 2016 section 3.4, arXiv:1511.05952): they multiply the loss of each sample, on the
    quadratic and on the linear branch alike, and are not normalized here.

    Args:
        prediction: [B] float32; the gradient flows through it.
        target: [B] float32, without gradient.
        delta: error from which on the loss is linear, > 0; raising it lets large errors weigh more.
        weight: [B] float32 importance weights, >= 0, or None for one everywhere.

    Returns:
        Scalar float32.
    """
    check_rank(1, prediction=prediction, target=target)
    if weight is None:
        return functional.huber_loss(prediction, target, delta=delta)
    check_rank(1, weight=weight)
    return torch.dot(functional.huber_loss(prediction, target, reduction="none", delta=delta), weight) / len(weight)


def chosen_q(q: Tensor, action: Tensor) -> Tensor:
    """Pick the value [B] of the action [B] taken, int64, from those of all [B, n_actions]."""
    check_rank(2, q=q)
    check_rank(1, action=action)
    return q.gather(1, action.unsqueeze(1)).squeeze(1)


def critic_loss(q: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over the batch of the squared error, summed over the critics; a scalar.

    The gradient flows through `q`, [critics, B]; `target` [B] is the same for all, and `weight` as in `joint_loss`.
    """
    check_rank(2, q=q)
    check_rank(1, target=target)
    return joint_loss((q - target).square(), weight)


def joint_loss(losses: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over the batch of losses [critics, B], summed over the critics: each learns as if it were alone.

    `weight`: [B] float32 importance weights, >= 0, or None for one everywhere.
    """
    check_rank(2, losses=losses)
    sums = losses.sum(0)
    if weight is None:
        return sums.mean()
    check_rank(1, weight=weight)
    return torch.dot(sums, weight) / len(weight)


def l2_penalty(parameters: Iterable[tuple[str, Tensor]]) -> Tensor:
    """Sum of the squares of all weights; biases, and the scales and shifts of layer norms, go free."""
    squares = [tensor.square().sum() for name, tensor in parameters if name.rpartition(".")[2] == "weight"]
    return torch.stack(squares).sum()


def q_target(
    reward: Tensor, discount: Tensor, next_q: Tensor, select_q: Tensor | None = None, legal: Tensor | None = None
) -> Tensor:
    """Q-learning target: reward + discount * next_q[argmax], Mnih et al. 2013, arXiv:1312.5602.

    Double Q-learning (van Hasselt et al. 2016, arXiv:1509.06461, eq. 4) chooses the action by another network than the
    one which values it: `select_q` is the online network's, `next_q` the target network's.

    Args:
        reward: [B] float32, n-step sum.
        discount: [B] float32, gamma^h * (1 - terminated).
        next_q: [B, n_actions] float32, the target network's values of the bootstrap observation.
        select_q: [B, n_actions] float32 values that choose the action; None lets `next_q` choose.
        legal: see `among_legal`.

    Returns:
        [B] float32; call it under `torch.no_grad()`.
    """
    check_rank(1, reward=reward, discount=discount)
    choosing = next_q if select_q is None else select_q
    check_rank(2, next_q=next_q, select_q=choosing)
    choosing = among_legal(choosing, legal)
    if select_q is None:
        return torch.addcmul(reward, discount, choosing.amax(1))
    best = choosing.argmax(1, keepdim=True)
    return torch.addcmul(reward, discount, next_q.gather(1, best).squeeze(1))


def among_legal(q: Tensor, legal: Tensor | None) -> Tensor:
    """Return values for choosing an action, with minus infinity for illegal ones.

    Args:
        q: [..., n_actions] float32.
        legal: bool like `q`, actions that may be chosen; a row without any, as at an episode's end, has them all. None:
            all.

    Returns:
        [..., n_actions] float32.
    """
    if legal is None:
        return q
    check_rank(q.ndim, legal=legal)
    return q.masked_fill(~legal & legal.any(-1, keepdim=True), -torch.inf)


class TargetNetwork:
    """A frozen copy of a model, moved toward it every `period` updates or a little at every update.

    Args:
        model: the online network, materialized; only read.
        period: copy the model every so many updates (Mnih et al. 2015); raising it makes learning steadier and slower.
        tau: share of the move in each update, target += tau * (model - target) (Lillicrap et al. 2016,
            arXiv:1509.02971), instead of copies by `period`; raising it makes the copy follow faster.
    """

    @checked
    def __init__(self, model: Module, *, period: PositiveInt = 100, tau: PositiveShare | None = None) -> None:
        self.period = period
        self.tau = tau
        self.network: Module = copy.deepcopy(model)
        self.network.requires_grad_(False)
        self._online: list[Tensor] = list(model.parameters())
        self._target: list[Tensor] = list(self.network.parameters())
        self._buffers = [pair for pair in zip(self.network.buffers(), model.buffers(), strict=True) if pair[0].numel()]

    @staticmethod
    @checked
    def check(target_update_period: PositiveInt, target_update_tau: PositiveShare | None) -> None:
        """Refuse settings outside their range; copies of earlier learners call it."""

    def __call__(self, obs: object) -> Tensor:
        """Value observations; the caller holds `torch.no_grad()`."""
        values: Tensor = self.network(obs)
        return values

    def after_update(self, updates: int) -> None:
        """Follow the model; `updates` is how many updates it has had, this one included."""
        self.follow()
        self.copy_if_due(updates)

    def follow(self) -> None:
        """Follow the model a little, with `tau`."""
        if self.tau is not None:
            self._move(self.tau)

    def copy_if_due(self, updates: int) -> None:
        """Copy the model after every `period` updates, without `tau`."""
        if self.tau is None and updates % self.period == 0:
            self._move(1.0)

    @torch.no_grad()
    def _move(self, tau: float) -> None:
        # The foreach forms are what torch's own optimizers use: one call for all tensors, half the time.
        if tau == 1.0:
            torch._foreach_copy_(self._target, self._online)
        else:
            torch._foreach_lerp_(self._target, self._online, tau)
        for ours, theirs in self._buffers:
            ours.copy_(theirs)  # running statistics are not averaged twice


class UpdateNoise:
    """A generator that starts again with each update, from a seed and the update's number.

    Checkpoints need not keep it: a learner that resumes at update n draws what an uninterrupted learner draws.
    """

    @checked
    def __init__(self, seed: NonNegativeInt, device: torch.device) -> None:
        # Seeds of learners are often small numbers, and so are differences between them.
        self._seed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
        self._generator = torch.Generator(device)

    def of(self, update: int) -> torch.Generator:
        """Return the generator in its state at the beginning of an update, >= 0."""
        # Neighboring seeds of torch's generator give related streams. SplitMix64 (Steele et al. 2014) spreads them, in
        # a tenth of the time of a SeedSequence.
        mixed = (self._seed + update * 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return self._generator.manual_seed((mixed ^ (mixed >> 31)) >> 1)
