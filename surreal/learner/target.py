"""The parts that off-policy learners share: the target network, a slowly following copy, and the noise of an update."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from surreal.base.pytorch import Module
from surreal.base.ranges import NonNegativeInt, PositiveInt, PositiveShare, checked

_MASK = (1 << 64) - 1


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

    Args:
        seed: seed of the learner.
        device: where the numbers are drawn.
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
