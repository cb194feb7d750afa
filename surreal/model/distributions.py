"""Distributions of actions, over batches of any leading axes `[..., ]`.

Log-probabilities and entropies are summed over an action's own axes, so they are [...]: one number a step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional


class Distribution(ABC):
    """Over the actions of a batch of steps."""

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw an action for each step, [..., *action_shape], without gradient."""

    @abstractmethod
    def mode(self) -> Tensor:
        """Return the most probable action of each step, [..., *action_shape]."""

    @abstractmethod
    def log_probability(self, action: Tensor) -> Tensor:
        """Return log p(action) of each step (of continuous actions the density's), [...] float32."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Return the entropy of each step, in nats, [...] float32."""

    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) of each step, in nats, [...] float32; raises `ValueError` without a formula."""
        raise ValueError(f"the KL divergence of a {type(self).__name__} is not known")

    def frozen(self) -> Self:
        """Return a copy without gradient, which does not change with the parameters."""
        raise ValueError(f"a {type(self).__name__} cannot be frozen")

    @abstractmethod
    def __getitem__(self, index: Any) -> Self:
        """Return the distribution of some of the steps, as `policy[:-1]` of sequences [T + 1, B]."""

    def masked(self, action_mask: Tensor) -> Distribution:
        """Return the distribution over legal actions only; raises `ValueError` if actions are not discrete.

        Args:
            action_mask: [..., n] bool.
        """
        raise ValueError("actions are continuous, so there is nothing that an action mask could forbid")


class Categorical(Distribution):
    """A distribution over n discrete actions by its logits [..., n], unnormalized log-probabilities."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits.log_softmax(-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        # The largest of log p + Gumbel noise is distributed as p (Gumbel 1954), and needs no sum over the actions.
        noise = torch.empty_like(self.logits).exponential_(generator=generator).log_()
        return (self.logits.detach() - noise).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_probability(self, action: Tensor) -> Tensor:
        return self.logits.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        # A forbidden action has p = 0 and log p = -inf, and adds nothing.
        return -(self.logits.exp() * self._finite()).sum(-1)

    def kl(self, other: Self) -> Tensor:
        return (self.logits.exp() * (self._finite() - other._finite())).sum(-1)

    def frozen(self) -> Self:
        return type(self)(self.logits.detach().clone())

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.logits[index])

    def masked(self, action_mask: Tensor) -> Self:
        return type(self)(self.logits.masked_fill(~action_mask, -torch.inf))

    def _finite(self) -> Tensor:
        return self.logits.clamp(min=torch.finfo(self.logits.dtype).min)


class Normal(Distribution):
    """Independent normal distributions over the components of a real vector.

    Args:
        mean: [..., n].
        log_sigma: logarithm of the standard deviation, broadcast to [..., n].
    """

    def __init__(self, mean: Tensor, log_sigma: Tensor) -> None:
        self.mean = mean
        self.log_sigma = log_sigma.expand_as(mean)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return self.at(torch.empty_like(self.mean).normal_(generator=generator))

    def at(self, noise: Tensor) -> Tensor:
        """Return the actions at `noise` [..., n] standard deviations from the mean, without gradient."""
        return self.mean.detach() + self.log_sigma.detach().exp() * noise

    def mode(self) -> Tensor:
        return self.mean

    def log_probability(self, action: Tensor) -> Tensor:
        error = (action - self.mean) * (-self.log_sigma).exp()
        return (-0.5 * error.square() - self.log_sigma - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_sigma + 0.5 * (1.0 + math.log(2 * math.pi))).sum(-1)

    def kl(self, other: Self) -> Tensor:
        variance, error = (2.0 * self.log_sigma).exp(), self.mean - other.mean
        ratio = (variance + error.square()) * (-2.0 * other.log_sigma).exp()
        return (other.log_sigma - self.log_sigma + 0.5 * (ratio - 1.0)).sum(-1)

    def frozen(self) -> Self:
        return type(self)(self.mean.detach().clone(), self.log_sigma.detach().clone())

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.mean[index], self.log_sigma[index])


class MultiCategorical(Distribution):
    """Independent choices, as a `MultiDiscrete` space has them.

    Args:
        parts: one distribution for each choice, with the same leading axes.
    """

    def __init__(self, parts: Sequence[Categorical]) -> None:
        self.parts = tuple(parts)

    @classmethod
    def from_logits(cls, logits: Tensor, choices: Sequence[int]) -> Self:
        """Cut [..., sum(choices)] unnormalized log-probabilities into those of each choice."""
        return cls([Categorical(part) for part in logits.split_with_sizes(list(choices), dim=-1)])

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        return torch.stack([part.sample(generator) for part in self.parts], dim=-1)

    def mode(self) -> Tensor:
        return torch.stack([part.mode() for part in self.parts], dim=-1)

    def log_probability(self, action: Tensor) -> Tensor:
        return torch.stack([part.log_probability(action[..., i]) for i, part in enumerate(self.parts)]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)

    def kl(self, other: Self) -> Tensor:
        return torch.stack([mine.kl(theirs) for mine, theirs in zip(self.parts, other.parts, strict=True)]).sum(0)

    def frozen(self) -> Self:
        return type(self)([part.frozen() for part in self.parts])

    def __getitem__(self, index: Any) -> Self:
        return type(self)([part[index] for part in self.parts])

    def masked(self, action_mask: Tensor) -> Self:
        masks = action_mask.split_with_sizes([part.logits.shape[-1] for part in self.parts], dim=-1)
        return type(self)([part.masked(mask) for part, mask in zip(self.parts, masks, strict=True)])


class Bernoulli(Distribution):
    """Independent switches, as a `MultiBinary` space has them; logits [..., n]: log p - log(1 - p) of on."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        drawn = torch.empty_like(self.logits).uniform_(generator=generator)
        return (drawn < self.logits.detach().sigmoid()).to(torch.int8)

    def mode(self) -> Tensor:
        return (self.logits > 0.0).to(torch.int8)

    def log_probability(self, action: Tensor) -> Tensor:
        return -functional.binary_cross_entropy_with_logits(
            self.logits, action.to(self.logits.dtype), reduction="none"
        ).sum(-1)

    def entropy(self) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.logits, self.logits.sigmoid(), reduction="none").sum(-1)

    def kl(self, other: Self) -> Tensor:
        p = self.logits.sigmoid()
        on = functional.logsigmoid(self.logits) - functional.logsigmoid(other.logits)
        off = functional.logsigmoid(-self.logits) - functional.logsigmoid(-other.logits)
        return (p * on + (1.0 - p) * off).sum(-1)

    def frozen(self) -> Self:
        return type(self)(self.logits.detach().clone())

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.logits[index])

    def masked(self, action_mask: Tensor) -> Distribution:
        raise ValueError("actions are switches; an action mask can forbid none of them")
