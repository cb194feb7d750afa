"""Noise that deterministic policies explore by: on actions scaled to [-1, 1], or on the policy's parameters."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surreal.agent.slots import SlotMemory
from surreal.base.ranges import PositiveInt, PositiveShare, checked
from surreal.base.types import Obs
from surreal.model import DeterministicActorCritic
from surreal.model.norms import Norm

#: Standard deviation for all rows, or [N, 1], one for each.
Sigma = float | NDArray[np.float64]


class ActionNoise(ABC):
    """Noise that is added to actions."""

    @checked
    def __init__(self, num_components: PositiveInt, rng: np.random.Generator) -> None:
        self._num_components = num_components
        self._rng = rng

    @abstractmethod
    def draw(self, sigma: Sigma, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Draw the noise of a turn, [N, num_components]; `is_first` marks rows that begin an episode."""


class GaussianNoise(ActionNoise):
    """Independent from step to step: N(0, sigma) (Fujimoto et al. 2018, arXiv:1802.09477)."""

    def draw(self, sigma: Sigma, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> NDArray[np.float64]:
        return sigma * self._rng.standard_normal((len(slots), self._num_components))


class OrnsteinUhlenbeckNoise(ActionNoise):
    """Correlated from step to step: x += sigma * N(0, 1) - theta * x (Lillicrap et al. 2016, arXiv:1509.02971).

    Each slot has its own x, which begins at 0 with each episode. Its standard deviation grows to
    sigma / sqrt(2 theta - theta^2).

    Args:
        theta: pull toward 0 in each step; lowering it keeps the noise in one direction for longer.
    """

    @checked
    def __init__(self, num_components: int, rng: np.random.Generator, theta: PositiveShare = 0.15) -> None:
        super().__init__(num_components, rng)
        self._theta = theta
        self._memory = SlotMemory((num_components,), torch.device("cpu"))

    def draw(self, sigma: Sigma, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> NDArray[np.float64]:
        before = self._memory.take(slots, is_first).numpy()
        after = (1.0 - self._theta) * before + sigma * self._rng.standard_normal(before.shape)
        self._memory.put(slots, torch.from_numpy(after).to(torch.float32))
        return after


#: Turns between two adaptations of the noise, and the factor of each (section 3 of the paper).
_TURNS, _FACTOR = 50, 1.01


class ParameterNoise:
    """A perturbed copy of an actor, whose noise adapts until actions differ by the requested amount.

    The noise is drawn again when an episode begins in any of the agent's environments, and lies on the newest
    parameters in every turn. Norms keep their parameters: with `norm: layer`, noise on the others means the same
    in all layers.

    Args:
        model: model with the actor to perturb; the caller holds its lock and is in inference mode.
    """

    def __init__(self, model: DeterministicActorCritic, rng: np.random.Generator) -> None:
        self.sigma = 0.05  #: standard deviation of the noise on each parameter
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
            distance: target of the adaptation, > 0: root of the mean squared difference between both actions, scaled to
                [-1, 1]; raising it explores more.
            is_new: whether an episode begins in one of the rows.
        """
        if is_new:
            self._noise = self._draw()
        torch._foreach_copy_(self._perturbed, torch._foreach_add(self._clean, self._noise, alpha=self.sigma))
        obs_filter = self._model.obs_filter
        perturbed: Tensor = self._actor.forward(obs if obs_filter is None else obs_filter.forward(obs))
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
        if not isinstance(module, Norm)
        for parameter in module.parameters(recurse=False)
    ]
