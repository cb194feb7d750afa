"""Critics of a stochastic policy: Q of its actions, in expectation, and the advantage of an action over it.

Critics flatten the leading axes of observations, so everything here is over N rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.learner.losses import TargetNetwork
from surreal.model import Categorical, Distribution
from surreal.model.conv import ConvStage
from surreal.model.heads import count_actions
from surreal.model.off_policy.action_range import ActionRange
from surreal.model.off_policy.critics import ContinuousCritics, Critics, DiscreteCritics


class PolicyCritics(ABC):
    """Critics, and the slowly following copy of them that their targets come from.

    Of several critics the smallest value counts, as in TD3 (arXiv:1802.09477).

    Args:
        tau: share by which the copy moves to the critics in each step, in (0, 1].
    """

    def __init__(self, critics: Critics, *, tau: float) -> None:
        self.critics = critics
        self.target = TargetNetwork(critics, tau=tau)

    @abstractmethod
    def expected(self, obs: Obs, policy: Distribution) -> Tensor:
        """Return E_p Q of N observations, [N] float32, which the policy maximizes by this gradient."""

    @abstractmethod
    def bootstrap(self, obs: Obs, policy: Distribution, generator: torch.Generator) -> Tensor:
        """Return the target critics' value of the policy's actions after N steps, [N] float32, without gradient."""

    @abstractmethod
    def advantage(self, obs: Obs, policy: Distribution, action: Tensor) -> Tensor:
        """Return how much better than E_p Q the critics take actions [N, *action_shape] to be, [N], detached."""


class DiscretePolicyCritics(PolicyCritics):
    """Critic of discrete actions: everything is a sum over all of them."""

    def expected(self, obs: Obs, policy: Distribution) -> Tensor:
        return _expectation(cast(Categorical, policy), self._values(self.critics, obs))

    @torch.no_grad()
    def bootstrap(self, obs: Obs, policy: Distribution, generator: torch.Generator) -> Tensor:
        return _expectation(cast(Categorical, policy), self._values(cast(Critics, self.target.network), obs))

    @torch.no_grad()
    def advantage(self, obs: Obs, policy: Distribution, action: Tensor) -> Tensor:
        values = self._values(self.critics, obs)
        chosen = values.gather(1, action.long().unsqueeze(1)).squeeze(1)
        return chosen - _expectation(cast(Categorical, policy), values)

    @staticmethod
    def _values(critics: Critics, obs: Obs) -> Tensor:
        return cast(DiscreteCritics, critics).all_actions(obs).amin(0)


class ContinuousPolicyCritics(PolicyCritics):
    """Critic of continuous actions: linear, tangent to Q at the policy's mean (section 3 of the paper)."""

    def expected(self, obs: Obs, policy: Distribution) -> Tensor:
        values: Tensor = self.critics(obs, policy.mode())
        return values.amin(0)

    @torch.no_grad()
    def bootstrap(self, obs: Obs, policy: Distribution, generator: torch.Generator) -> Tensor:
        values: Tensor = self.target.network(obs, policy.sample(generator))
        return values.amin(0)

    def advantage(self, obs: Obs, policy: Distribution, action: Tensor) -> Tensor:
        with torch.enable_grad():
            mean = policy.mode().detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.critics(obs, mean).amin(0).sum(), mean)
        return (slope * (action - mean.detach())).sum(-1)


def _expectation(policy: Categorical, values: Tensor) -> Tensor:
    return (policy.logits.exp() * values).sum(1)


def make_policy_critics(
    obs_spec: ObsSpec,
    action_space: gymnasium.Space[Any],
    *,
    count: int,
    hiddens: Sequence[int],
    convolutions: Sequence[ConvStage] | None,
    tau: float,
    generator: torch.Generator | None,
    device: torch.device,
) -> PolicyCritics:
    """Make the critics for actions that are Discrete from 0, or a bounded Box of one axis; else `ValueError`."""
    options: dict[str, Any] = {"count": count, "hiddens": hiddens, "convolutions": convolutions, "generator": generator}
    if isinstance(action_space, spaces.Discrete):
        discrete = DiscreteCritics(obs_spec, count_actions(action_space), **options)
        return DiscretePolicyCritics(discrete.to(device), tau=tau)
    continuous = ContinuousCritics(obs_spec, ActionRange(action_space), **options)
    return ContinuousPolicyCritics(continuous.to(device), tau=tau)
