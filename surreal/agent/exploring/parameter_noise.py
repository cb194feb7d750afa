"""`ParameterNoise`: exploring by a policy whose parameters are noisy (Plappert et al. 2018, arXiv:1706.01905)."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn

from surreal.base.types import Obs
from surreal.model import DeterministicActorCritic

#: Turns between two adaptations of the noise, and the factor of each (section 3 of the paper).
_TURNS, _FACTOR = 50, 1.01


class ParameterNoise:
    """A perturbed copy of an actor, whose noise adapts until actions differ as much as they should.

    The noise is drawn again when an episode begins in any of the agent's environments, and lies on the newest
    parameters in every turn. Layer norms keep their parameters: with `layer_norm`, noise on the others means the same
    in all layers.

    Attributes:
        sigma: standard deviation of the noise on each parameter.

    Args:
        model: model with the actor to perturb; the caller holds its lock and is in inference mode.
        rng: seeds the noise.
    """

    def __init__(self, model: DeterministicActorCritic, rng: np.random.Generator) -> None:
        self.sigma = 0.05
        self._model = model
        self._generator = torch.Generator(model.device).manual_seed(int(rng.integers(2**63)))
        self._actor = copy.deepcopy(model.actor)
        self._clean, self._perturbed = _noisy_parameters(model.actor), _noisy_parameters(self._actor)
        self._noise = self._draw()
        self._squares: list[Tensor] = []

    def perturb(self, obs: Obs, actions: Tensor, distance: float, *, is_new: bool) -> Tensor:
        """Return the perturbed actor's actions, [N, n].

        Args:
            obs: [N, *obs_shape] tensor, or nested dicts and tuples of them.
            actions: [N, n] of the actor without noise.
            distance: that the noise adapts to: root of the mean squared difference between both actions, scaled to
                [-1, 1], > 0; more explores more.
            is_new: whether an episode begins in one of the rows.
        """
        if is_new:
            self._noise = self._draw()
        torch._foreach_copy_(self._perturbed, torch._foreach_add(self._clean, self._noise, alpha=self.sigma))
        perturbed: Tensor = self._actor.forward(obs)
        self._squares.append(((perturbed - actions) / self._model.bounds.half_range).square().mean())
        if len(self._squares) == _TURNS:
            found = math.sqrt(float(torch.stack(self._squares).mean()))
            self.sigma *= _FACTOR if found < distance else 1.0 / _FACTOR
            self._squares.clear()
        return perturbed

    def _draw(self) -> list[Tensor]:
        return [torch.empty_like(tensor).normal_(generator=self._generator) for tensor in self._clean]


def _noisy_parameters(actor: nn.Module) -> list[Tensor]:
    return [
        parameter
        for module in actor.modules()
        if not isinstance(module, nn.LayerNorm)
        for parameter in module.parameters(recurse=False)
    ]
