"""Distributions of actions in NumPy: what agents ask of them, for N rows; `heads` makes them.

Each draws from the same torch generator as its counterpart in `surreal.model.distributions`, in the same order, so a
seed gives the same actions up to rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

#: Torch gives no warnings for infinities and nan.
_quiet = np.errstate(all="ignore")
#: Numbers up to which one call that is slow for each of them takes less time than five fast ones.
_FEW = 256


class Noise:
    """Memory for random numbers, used again in each turn."""

    def __init__(self) -> None:
        self._tensor = torch.empty(0)
        self._array: Floats = self._tensor.numpy()

    def like(self, numbers: Floats) -> tuple[Tensor, Floats]:
        """Return a tensor and an array on the same memory, in the shape of these numbers."""
        if self._array.shape != numbers.shape:
            with torch.inference_mode(False):  # such a tensor may change in any mode
                self._tensor = torch.empty(numbers.shape)
            self._array = self._tensor.numpy()
        return self._tensor, self._array


class NumpyPolicy(ABC):
    """A distribution over the actions of N rows."""

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> NDArray[Any]:
        """Draw an action for each row, [N, *action_shape]."""

    @abstractmethod
    def mode(self) -> NDArray[Any]:
        """Return the most probable action of each row, [N, *action_shape], in new memory."""

    def log_probability(self, action: NDArray[Any]) -> Floats:
        """Return log p(action) of each row (of continuous actions the density's), [N]."""
        raise ValueError(f"log-probabilities of a {type(self).__name__} are not known")

    def masked(self, action_mask: Tensor) -> NumpyPolicy:
        """Return the distribution over legal actions, [N, n] bool; raises `ValueError` if not discrete."""
        raise ValueError(f"an action mask can forbid nothing in a {type(self).__name__}")


class NumpyCategorical(NumpyPolicy):
    """Counterpart of `Categorical`; `logits` [N, n] are unnormalized log-probabilities."""

    def __init__(self, logits: Floats, noise: Noise) -> None:
        self.logits = logits
        self._noise = noise

    def sample(self, generator: torch.Generator | None = None) -> Integers:
        tensor, noise = self._noise.like(self.logits)
        tensor.exponential_(generator=generator)
        np.log(noise, out=noise)
        actions: Integers = np.subtract(self.logits, noise, out=noise).argmax(-1)
        return actions

    def mode(self) -> Integers:
        actions: Integers = self.logits.argmax(-1)
        return actions

    @_quiet
    def log_probability(self, action: NDArray[Any]) -> Floats:
        found: Floats = self.logits[np.arange(len(action)), action]
        found -= _log_sum_exp(self.logits)
        return found

    def masked(self, action_mask: Tensor) -> NumpyCategorical:
        return NumpyCategorical(np.where(action_mask.numpy(), self.logits, np.float32(-np.inf)), self._noise)


def _log_sum_exp(logits: Floats) -> Floats:
    """Return log(sum(exp(logits))) over the last axis, [N]."""
    if logits.size <= _FEW:
        found: Floats = np.logaddexp.reduce(logits, -1)
        return found
    highest = np.maximum.reduce(logits, -1, keepdims=True)
    found = np.log(np.add.reduce(np.exp(logits - highest), -1))
    return np.add(found, highest[:, 0], out=found)


class NumpyMultiCategorical(NumpyPolicy):
    """Counterpart of `MultiCategorical`; independent choices."""

    def __init__(self, parts: Sequence[NumpyCategorical]) -> None:
        self.parts = tuple(parts)

    @classmethod
    def from_logits(cls, logits: Floats, noise: Noise, choices: Sequence[int]) -> NumpyMultiCategorical:
        """Cut [N, sum(choices)] unnormalized log-probabilities into those of each choice."""
        return cls([NumpyCategorical(part, noise) for part in np.split(logits, np.cumsum(choices[:-1]), axis=-1)])

    def sample(self, generator: torch.Generator | None = None) -> Integers:
        return np.stack([part.sample(generator) for part in self.parts], axis=-1)

    def mode(self) -> Integers:
        return np.stack([part.mode() for part in self.parts], axis=-1)

    def log_probability(self, action: NDArray[Any]) -> Floats:
        parts = [part.log_probability(action[:, i]) for i, part in enumerate(self.parts)]
        found: Floats = np.add.reduce(parts)
        return found

    def masked(self, action_mask: Tensor) -> NumpyMultiCategorical:
        masks = action_mask.split_with_sizes([part.logits.shape[-1] for part in self.parts], dim=-1)
        return NumpyMultiCategorical([part.masked(mask) for part, mask in zip(self.parts, masks, strict=True)])


class NumpyBernoulli(NumpyPolicy):
    """Counterpart of `Bernoulli`; `logits` [N, n] of each switch being on."""

    def __init__(self, logits: Floats, noise: Noise) -> None:
        self.logits = logits
        self._noise = noise

    @_quiet
    def sample(self, generator: torch.Generator | None = None) -> NDArray[np.int8]:
        tensor, drawn = self._noise.like(self.logits)
        tensor.uniform_(generator=generator)
        return (drawn < 1.0 / (1.0 + np.exp(-self.logits))).astype(np.int8)

    def mode(self) -> NDArray[np.int8]:
        return (self.logits > 0.0).astype(np.int8)

    @_quiet
    def log_probability(self, action: NDArray[Any]) -> Floats:
        found: Floats = -np.logaddexp(np.float32(0.0), np.where(action, -self.logits, self.logits)).sum(-1)
        return found


class NumpyNormal(NumpyPolicy):
    """Counterpart of `Normal`; `mean` is [N, n], and `log_sigma` broadcasts to it."""

    def __init__(self, mean: Floats, log_sigma: Floats, noise: Noise) -> None:
        self.mean = mean
        self.log_sigma = log_sigma
        self._noise = noise

    def sample(self, generator: torch.Generator | None = None) -> Floats:
        return self.at(self._noise.like(self.mean)[0].normal_(generator=generator))

    @_quiet
    def at(self, noise: Tensor) -> Floats:
        """Return the actions at `noise` [N, n] standard deviations from the mean."""
        actions: Floats = self.mean + np.exp(self.log_sigma) * noise.numpy()
        return actions

    def mode(self) -> Floats:
        return self.mean.copy()

    @_quiet
    def log_probability(self, action: NDArray[Any]) -> Floats:
        error = (action - self.mean) * np.exp(-self.log_sigma)
        found: Floats = (-0.5 * (error * error) - self.log_sigma - 0.5 * math.log(2 * math.pi)).sum(-1)
        return found


class NumpyRange(NamedTuple):
    """Counterpart of `ActionRange`; each is [n]."""

    center: Floats
    half_range: Floats
    low: Floats
    high: Floats

    def squash(self, numbers: Floats) -> Floats:
        """Bring any numbers [N, n] into the range, by tanh."""
        actions: Floats = np.tanh(numbers)
        actions *= self.half_range
        actions += self.center
        return np.minimum(np.maximum(actions, self.low), self.high)


class NumpySquashedNormal(NumpyPolicy):
    """Counterpart of `SquashedNormal`; `normal` is the distribution before tanh."""

    def __init__(self, normal: NumpyNormal, bounds: NumpyRange) -> None:
        self.normal = normal
        self.bounds = bounds

    def sample(self, generator: torch.Generator | None = None) -> Floats:
        return self.bounds.squash(self.normal.sample(generator))

    def at(self, noise: Tensor) -> Floats:
        """Return the actions at `noise` [N, n] standard deviations from the mean before tanh."""
        return self.bounds.squash(self.normal.at(noise))

    def mode(self) -> Floats:
        return self.bounds.squash(self.normal.mean)
