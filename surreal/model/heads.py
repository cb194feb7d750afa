"""Heads: from features [..., num_features] to what agents and learners ask for: Q values, a policy, a value."""

from __future__ import annotations

import operator

import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal.model.distributions import Categorical, Distribution, Normal
from surreal.model.layers.mlp import Dense

Generator = torch.Generator | None


class QHead(nn.Module):
    """Values of all discrete actions.

    Args:
        num_features: of its input.
        num_actions: >= 1.
        dueling: split the output into the state's value and the actions' advantages, Q = V + A - mean(A)
            (Wang et al. 2016 eq. 9, arXiv:1511.06581).
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(
        self, num_features: int, num_actions: int, *, dueling: bool = False, generator: Generator = None
    ) -> None:
        super().__init__()
        self.dueling = dueling
        self.output = Dense(num_features, num_actions + dueling, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Compute [..., num_actions] float32."""
        output: Tensor = self.output.forward(features)
        return combine_dueling(output) if self.dueling else output


class ValueHead(nn.Module):
    """The value of a state: one number a step.

    Args:
        num_features: of its input.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(self, num_features: int, generator: Generator = None) -> None:
        super().__init__()
        self.output = Dense(num_features, 1, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Compute [...] float32."""
        value: Tensor = self.output.forward(features)
        return value.squeeze(-1)


class CategoricalHead(nn.Module):
    """A policy over discrete actions.

    Args:
        num_features: of its input.
        num_actions: >= 1.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(self, num_features: int, num_actions: int, generator: Generator = None) -> None:
        super().__init__()
        self.output = Dense(num_features, num_actions, generator)

    def forward(self, features: Tensor) -> Distribution:
        """Give a `Categorical` over [..., num_actions]."""
        return Categorical(self.output.forward(features))


class NormalHead(nn.Module):
    """A policy over real vectors, with a standard deviation that does not depend on the state.

    Args:
        num_features: of its input.
        num_components: of an action, >= 1.
        generator: draws the initial values; None uses torch's global one.
        log_sigma: logarithm of the standard deviations at first.
    """

    def __init__(
        self, num_features: int, num_components: int, generator: Generator = None, *, log_sigma: float = 0.0
    ) -> None:
        super().__init__()
        self.output = Dense(num_features, num_components, generator)
        self.log_sigma = nn.Parameter(torch.full((num_components,), log_sigma))

    def forward(self, features: Tensor) -> Distribution:
        """Give a `Normal` over [..., num_components]."""
        return Normal(self.output.forward(features), self.log_sigma)


def combine_dueling(output: Tensor) -> Tensor:
    """Compute Q [..., n] from the state's value and the actions' advantages, [..., 1 + n]."""
    value, advantage = output[..., :1], output[..., 1:]
    return value + advantage - advantage.mean(dim=-1, keepdim=True)


def count_actions(action_space: int | spaces.Discrete) -> int:
    """Read the number of actions.

    Raises:
        ValueError: the space does not start at 0, or there is no action.
    """
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
