"""The head of a policy for every kind of action space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal.model.distributions import Distribution, Normal
from surreal.model.heads import CategoricalHead, NormalHead, count_actions
from surreal.model.layers.mlp import Dense
from surreal.model.policy.multi_discrete import Bernoulli, MultiCategorical

Generator = torch.Generator | None

#: Standard deviations that depend on the state stay between exp(-20) and exp(2), as is usual since SAC (1801.01290).
_LOG_SIGMA = (-20.0, 2.0)


@dataclass(frozen=True)
class SigmaSettings:
    """The standard deviation of continuous actions.

    Args:
        sigma: "free": parameters of their own, the same in all states; "state": an output of the network.
        log_sigma: its logarithm at first; raising it explores more.
    """

    sigma: str = "free"
    log_sigma: float = 0.0

    def __post_init__(self) -> None:
        if self.sigma not in ("free", "state"):
            raise ValueError(f"sigma is {self.sigma!r}; it must be free or state")
        if not _LOG_SIGMA[0] < self.log_sigma < _LOG_SIGMA[1]:
            raise ValueError(f"log_sigma is {self.log_sigma}; it must be between {_LOG_SIGMA[0]} and {_LOG_SIGMA[1]}")


class StateNormalHead(nn.Module):
    """A policy over real vectors, whose standard deviation depends on the state.

    Args:
        num_features: of its input.
        num_components: of an action, >= 1.
        generator: draws the initial values; None uses torch's global one.
        log_sigma: logarithm of the standard deviations at first, about.
    """

    def __init__(
        self, num_features: int, num_components: int, generator: Generator = None, *, log_sigma: float = 0.0
    ) -> None:
        super().__init__()
        self.output = Dense(num_features, 2 * num_components, generator)
        self._log_sigma = log_sigma

    def forward(self, features: Tensor) -> Distribution:
        """Give a `Normal` over [..., num_components]."""
        mean, log_sigma = self.output.forward(features).chunk(2, dim=-1)
        return Normal(mean, (log_sigma + self._log_sigma).clamp(*_LOG_SIGMA))


class MultiCategoricalHead(nn.Module):
    """A policy over several discrete choices at once.

    Args:
        num_features: of its input.
        choices: how many values each of them has, each >= 1.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(self, num_features: int, choices: list[int], generator: Generator = None) -> None:
        super().__init__()
        self._choices = choices
        self.output = Dense(num_features, sum(choices), generator)

    def forward(self, features: Tensor) -> Distribution:
        """Give a `MultiCategorical`."""
        return MultiCategorical.from_logits(self.output.forward(features), self._choices)


class BernoulliHead(nn.Module):
    """A policy over several switches at once.

    Args:
        num_features: of its input.
        num_switches: >= 1.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(self, num_features: int, num_switches: int, generator: Generator = None) -> None:
        super().__init__()
        self.output = Dense(num_features, num_switches, generator)

    def forward(self, features: Tensor) -> Distribution:
        """Give a `Bernoulli` over [..., num_switches]."""
        return Bernoulli(self.output.forward(features))


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
        return CategoricalHead(num_features, count_actions(action_space), generator)
    has_one_axis = len(action_space.shape or ()) == 1
    if isinstance(action_space, spaces.MultiDiscrete) and has_one_axis and not np.any(action_space.start):
        return MultiCategoricalHead(num_features, action_space.nvec.tolist(), generator)
    if isinstance(action_space, spaces.MultiBinary) and has_one_axis:
        return BernoulliHead(num_features, action_space.shape[0], generator)
    if isinstance(action_space, spaces.Box) and has_one_axis and action_space.dtype == np.float32:
        settings = SigmaSettings() if sigma is None else sigma
        head = NormalHead if settings.sigma == "free" else StateNormalHead
        return head(num_features, action_space.shape[0], generator, log_sigma=settings.log_sigma)
    raise ValueError(
        f"there is no policy for action space {action_space}; use Discrete, MultiDiscrete or MultiBinary of one axis"
        " from 0, or a vector Box of float32"
    )
