"""Heads: from features [..., num_features] to a value, or to a policy over every kind of action."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import torch
from annotated_types import Gt, Lt
from gymnasium import spaces
from torch import Tensor, nn

from surreal.base.ranges import PositiveInt, checked
from surreal.model.distributions import Bernoulli, Categorical, Distribution, MultiCategorical, Normal
from surreal.model.mlp import Dense, QHead, combine_dueling  # noqa: F401 - users import them from here

Generator = torch.Generator | None


class ValueHead(nn.Module):
    """The value of a state: one number a step."""

    def __init__(self, num_features: int, generator: Generator = None) -> None:
        super().__init__()
        self.output = Dense(num_features, 1, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Compute [...] float32."""
        value: Tensor = self.output.forward(features)
        return value.squeeze(-1)


def count_actions(action_space: int | spaces.Discrete) -> int:
    """Read the number of actions; raises `ValueError` if the space does not start at 0, or there is no action."""
    if isinstance(action_space, spaces.Discrete):
        if action_space.start != 0:
            raise ValueError(f"action space {action_space} starts at {action_space.start}; it must start at 0")
        return int(action_space.n)
    try:
        count = operator.index(action_space)
    except TypeError as error:
        raise ValueError(f"action_space is {action_space!r}; use a number of actions or a Discrete space") from error
    if count < 1:
        raise ValueError(f"action_space is {count}; it must be >= 1")
    return count


#: Standard deviations that depend on the state stay between exp(-20) and exp(2), as is usual since SAC (1801.01290).
LOG_SIGMA_BOUNDS = (-20.0, 2.0)
#: Logarithm of a standard deviation.
LogSigma = Annotated[float, Gt(LOG_SIGMA_BOUNDS[0]), Lt(LOG_SIGMA_BOUNDS[1])]


@checked
@dataclass(frozen=True)
class SigmaSettings:
    """The standard deviation of continuous actions."""

    #: "free": separate parameters, the same in all states; "state": an output of the network
    sigma: Literal["free", "state"] = "free"
    log_sigma: LogSigma = 0.0  #: initial logarithm of the standard deviation; raising it explores more


class PolicyHead(nn.Module):
    """A policy that the outputs of one dense layer say all about.

    Args:
        distribution: makes the distribution over actions of [..., num_outputs] float32.
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
        """Return distributions over actions with batch shape [...]."""
        return self._distribution(self.output.forward(features))


class NormalHead(nn.Module):
    """A policy over real vectors, with a standard deviation that does not depend on the state."""

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
    """Make the head for a space of actions; raises `ValueError` if there is none for such a space."""
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
        normal = partial(state_normal, log_sigma=settings.log_sigma)
        return PolicyHead(num_features, 2 * num_components, normal, generator)
    raise ValueError(
        f"there is no policy for action space {action_space}; use Discrete, MultiDiscrete or MultiBinary of one axis"
        " from 0, or a vector Box of float32"
    )


def state_normal(outputs: Tensor, *, log_sigma: float) -> Normal:
    """Make a distribution whose deviation depends on the state; at first its logarithm is about `log_sigma`."""
    mean, above = outputs.chunk(2, dim=-1)
    return Normal(mean, (above + log_sigma).clamp(*LOG_SIGMA_BOUNDS))
