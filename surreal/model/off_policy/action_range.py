"""Bounded actions: their range, and a normal distribution squashed into it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import softplus

from surreal.model.distributions import Distribution, Normal


class ActionRange(nn.Module):
    """Translates between actions of an environment and actions scaled to [-1, 1] in each component.

    Its tensors move with the module that it is in. They are not parameters: every process gets them from the
    environment.

    Args:
        action_space: Box of one axis, float32, with finite bounds.

    Raises:
        ValueError: it is another space.
    """

    low: Tensor
    high: Tensor
    center: Tensor
    half_range: Tensor
    log_half_range: Tensor
    _factor: Tensor
    _offset: Tensor

    def __init__(self, action_space: gymnasium.Space[Any]) -> None:
        super().__init__()
        if not isinstance(action_space, spaces.Box) or len(action_space.shape) != 1 or action_space.dtype != np.float32:
            raise ValueError(f"actions are {action_space}; use a vector Box of float32")
        low, high = action_space.low.astype(np.float64), action_space.high.astype(np.float64)
        if not np.isfinite(high - low).all() or not (low < high).all():
            raise ValueError(f"actions are {action_space}; bounds must be finite, and low below high")
        self.num_components = len(low)
        center, half_range = (low + high) / 2.0, (high - low) / 2.0
        numbers = {
            "low": low,
            "high": high,
            "center": center,
            "half_range": half_range,
            "log_half_range": np.log(half_range),
            "_factor": 1.0 / half_range,
            "_offset": -center / half_range,
        }
        for name, values in numbers.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)

    def to_env(self, scaled: Tensor) -> Tensor:
        """Turn actions [..., n] in [-1, 1] into those of the environment; up to rounding within its bounds."""
        return torch.addcmul(self.center, scaled, self.half_range)

    def to_scaled(self, action: Tensor) -> Tensor:
        """Turn actions [..., n] of the environment into [-1, 1]."""
        return torch.addcmul(self._offset, action, self._factor)

    def clip(self, action: Tensor) -> Tensor:
        """Bring actions [..., n] of the environment within its bounds."""
        return action.clamp(self.low, self.high)


#: Distance from the bounds, of [-1, 1], at which an action's density is taken: beyond, float32 cannot undo tanh.
_EDGE = 1e-6
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


class Drawn(NamedTuple):
    """Actions through which gradients flow, and how probable they are."""

    action: Tensor  #: [..., n]
    log_probability: Tensor  #: [...] of their density


class SquashedNormal(Distribution):
    """Over actions within bounds, in the units of the environment.

    Args:
        mean: [..., n] of the normal distribution before tanh.
        log_sigma: logarithm of its standard deviation, broadcast to [..., n].
    """

    def __init__(self, mean: Tensor, log_sigma: Tensor, bounds: ActionRange) -> None:
        self.normal = Normal(mean, log_sigma)
        self.bounds = bounds

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.bounds.clip(self.bounds.to_env(self.normal.sample(generator).tanh_()))

    def at(self, noise: Tensor) -> Tensor:
        """Return the actions at `noise` [..., n] standard deviations from the mean before tanh."""
        return self.bounds.clip(self.bounds.to_env(self.normal.at(noise).tanh()))

    def draw(self, generator: torch.Generator | None = None) -> Drawn:
        """Draw an action for each step by the reparameterization u = mean + sigma * noise: gradients flow through it.

        The log-probability is computed from u, not from the action, so nothing is lost near the bounds.
        """
        mean, log_sigma = self.normal.mean, self.normal.log_sigma
        noise = torch.empty_like(mean).normal_(generator=generator)
        squashed = torch.addcmul(mean, log_sigma.exp(), noise)
        log_normal = -0.5 * noise.square() - log_sigma - 0.5 * math.log(2 * math.pi)
        log_probability = (log_normal - self._log_slope(squashed)).sum(-1)
        return Drawn(self.bounds.to_env(squashed.tanh()), log_probability)

    def mode(self) -> Tensor:
        """Return tanh of the mean: the median of each component, which papers act by when they do not explore."""
        return self.bounds.clip(self.bounds.to_env(self.normal.mean.tanh()))

    def log_probability(self, action: Tensor) -> Tensor:
        squashed = self.bounds.to_scaled(action).clamp(-1.0 + _EDGE, 1.0 - _EDGE).atanh()
        return self.normal.log_probability(squashed) - self._log_slope(squashed).sum(-1)

    def entropy(self) -> Tensor:
        # Entropy of the normal plus the squashing's mean, which has no closed form, by Gauss-Hermite
        # quadrature.
        mean, sigma = self.normal.mean.unsqueeze(-1), self.normal.log_sigma.exp().unsqueeze(-1)
        nodes, weights = (mean.new_tensor(values) for values in (_NODES, _WEIGHTS / math.sqrt(2 * math.pi)))
        slope = self._log_slope((mean + sigma * nodes).movedim(-1, 0))
        expected: Tensor = torch.tensordot(weights, slope, 1)
        return self.normal.entropy() + expected.sum(-1)

    def _log_slope(self, squashed: Tensor) -> Tensor:
        """Log of the derivative of an action by u: log half + log(1 - tanh(u)^2), which no u makes infinite."""
        return self.bounds.log_half_range + 2.0 * (math.log(2.0) - squashed - softplus(-2.0 * squashed))

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.normal.mean[index], self.normal.log_sigma[index], self.bounds)


#: Added to variances that depend on the state, which features of 0 would make 0.
_LEAST_VARIANCE = 1e-6


class StateDependentNormal(SquashedNormal):
    """A squashed normal whose noise is a matrix times features of the state: gSDE, Raffin et al. 2021.

    Noise before tanh is z^T E, with features z and a matrix E [F, n] of entries from N(0, sigma_fa^2)
    (arXiv:2005.05719). Given the state alone, its component a is normal with the variance sum_f z_f^2 sigma_fa^2, from
    which log-probabilities follow.
    Agents keep a matrix for some steps, so that equal states get equal noise; learners draw each row separately.

    Args:
        mean: [..., n] before tanh.
        features: [..., F].
        log_sigma: [F, n] logarithm of the standard deviation of the matrix's entries.
    """

    def __init__(self, mean: Tensor, features: Tensor, log_sigma: Tensor, bounds: ActionRange) -> None:
        variance = features.square() @ (2.0 * log_sigma).exp() + _LEAST_VARIANCE
        super().__init__(mean, 0.5 * variance.log(), bounds)
        self.features = features
        self.log_sigma = log_sigma

    def noise(self, matrices: Tensor) -> Tensor:
        """Return the noise of matrices of standard normal numbers, [..., F, n], in standard deviations, [..., n]."""
        drawn = (self.features.unsqueeze(-2) @ (matrices * self.log_sigma.exp())).squeeze(-2)
        return drawn * (-self.normal.log_sigma).exp()

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.normal.mean[index], self.features[index], self.log_sigma, self.bounds)
