"""Policy heads for every kind of action, and the distributions of several choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

import gymnasium
import numpy as np
import torch
from annotated_types import Gt, Lt
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from surreal.base.ranges import PositiveInt, checked
from surreal.model.distributions import Categorical, Distribution, Normal
from surreal.model.heads import Generator, count_actions
from surreal.model.mlp import Dense


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


#: Standard deviations that depend on the state stay between exp(-20) and exp(2), as is usual since SAC (1801.01290).
_LOG_SIGMA = (-20.0, 2.0)
#: Logarithm of a standard deviation.
LogSigma = Annotated[float, Gt(_LOG_SIGMA[0]), Lt(_LOG_SIGMA[1])]


@checked
@dataclass(frozen=True)
class SigmaSettings:
    """The standard deviation of continuous actions.

    Args:
        sigma: "free": separate parameters, the same in all states; "state": an output of the network.
        log_sigma: its logarithm at first; raising it explores more.
    """

    sigma: Literal["free", "state"] = "free"
    log_sigma: LogSigma = 0.0


class PolicyHead(nn.Module):
    """A policy that the outputs of one dense layer say all about.

    Args:
        num_features: number of features of its input.
        num_outputs: number of outputs of the layer.
        distribution: makes the distribution over actions of [..., num_outputs] float32.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        distribution: Callable[[Tensor], Distribution],
        generator: Generator = None,
    ) -> None:
        super().__init__()
        self.output = Dense(num_features, num_outputs, generator)
        self._distribution = distribution

    def forward(self, features: Tensor) -> Distribution:
        """Return the distribution over actions, [...] of them."""
        return self._distribution(self.output.forward(features))


class NormalHead(nn.Module):
    """A policy over real vectors, with a standard deviation that does not depend on the state.

    Args:
        num_features: number of features of its input.
        num_components: number of components of an action.
        generator: draws the initial values; None uses torch's global one.
        log_sigma: logarithm of the standard deviations at first.
    """

    @checked
    def __init__(
        self, num_features: int, num_components: PositiveInt, generator: Generator = None, *, log_sigma: float = 0.0
    ) -> None:
        super().__init__()
        self.output = Dense(num_features, num_components, generator)
        self.log_sigma = nn.Parameter(torch.full((num_components,), float(log_sigma)))

    def forward(self, features: Tensor) -> Distribution:
        """Return a `Normal` over [..., num_components]."""
        return Normal(self.output.forward(features), self.log_sigma)


def make_policy_head(
    num_features: int,
    action_space: gymnasium.Space[Any],
    generator: Generator = None,
    sigma: SigmaSettings | None = None,
) -> nn.Module:
    """Make the head for a space of actions.

    Raises:
        ValueError: there is none for such a space.
    """
    if isinstance(action_space, spaces.Discrete):
        return PolicyHead(num_features, count_actions(action_space), Categorical, generator)
    has_one_axis = len(action_space.shape or ()) == 1
    if isinstance(action_space, spaces.MultiDiscrete) and has_one_axis and not np.any(action_space.start):
        choices = action_space.nvec.tolist()
        distribution = partial(MultiCategorical.from_logits, choices=choices)
        return PolicyHead(num_features, sum(choices), distribution, generator)
    if isinstance(action_space, spaces.MultiBinary) and has_one_axis:
        return PolicyHead(num_features, action_space.shape[0], Bernoulli, generator)
    if isinstance(action_space, spaces.Box) and has_one_axis and action_space.dtype == np.float32:
        settings, num_components = SigmaSettings() if sigma is None else sigma, action_space.shape[0]
        if settings.sigma == "free":
            return NormalHead(num_features, num_components, generator, log_sigma=settings.log_sigma)
        return PolicyHead(num_features, 2 * num_components, partial(_normal, log_sigma=settings.log_sigma), generator)
    raise ValueError(
        f"there is no policy for action space {action_space}; use Discrete, MultiDiscrete or MultiBinary of one axis"
        " from 0, or a vector Box of float32"
    )


def _normal(outputs: Tensor, *, log_sigma: float) -> Normal:
    """Make a distribution whose deviation depends on the state; at first its logarithm is about `log_sigma`."""
    mean, above = outputs.chunk(2, dim=-1)
    return Normal(mean, (above + log_sigma).clamp(*_LOG_SIGMA))
