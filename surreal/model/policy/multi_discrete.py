"""Distributions over actions of several discrete parts: some choices at once, or some switches at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from surreal.model.distributions import Categorical, Distribution


class MultiCategorical(Distribution):
    """Independent choices, as a `MultiDiscrete` space has them.

    Args:
        parts: one distribution for each choice, with the same leading axes.
    """

    def __init__(self, parts: Sequence[Categorical]) -> None:
        self.parts = tuple(parts)

    @classmethod
    def from_logits(cls, logits: Tensor, choices: Sequence[int]) -> Self:
        """Cut [..., sum(choices)] unnormalised log-probabilities into those of each choice."""
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
    """Independent switches, as a `MultiBinary` space has them.

    Args:
        logits: [..., n] of each switch being on: log p - log(1 - p).
    """

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
