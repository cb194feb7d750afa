"""Heads: from features [..., num_features] to Q values, or to a value; `policy_head` has those of policies."""

from __future__ import annotations

import operator

import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal.model.mlp import Dense

Generator = torch.Generator | None


class QHead(nn.Module):
    """Values of all discrete actions.

    Args:
        num_features: number of features of its input.
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
        output: Tensor = self._modules["output"].forward(features)  # type: ignore[union-attr]  # see `Dense`
        return combine_dueling(output) if self.dueling else output


class ValueHead(nn.Module):
    """The value of a state: one number a step.

    Args:
        num_features: number of features of its input.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(self, num_features: int, generator: Generator = None) -> None:
        super().__init__()
        self.output = Dense(num_features, 1, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Compute [...] float32."""
        value: Tensor = self.output.forward(features)
        return value.squeeze(-1)


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
