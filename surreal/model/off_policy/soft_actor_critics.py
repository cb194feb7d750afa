"""Models for soft actor-critic: a policy, critics, and what the two say together of a state."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.heads import count_actions
from surreal.model.off_policy.action_range import ActionRange
from surreal.model.off_policy.actor_critics import OffPolicyActorCritic
from surreal.model.off_policy.actors import CategoricalActor, SquashedNormalActor
from surreal.model.off_policy.critics import ContinuousCritics, Critics, DiscreteCritics


class Expectation(NamedTuple):
    """Of what a policy does."""

    value: Tensor  #: [B] float32, by the smallest of the critics
    log_probability: Tensor  #: [B] float32


class SoftModel(OffPolicyActorCritic):
    """Base of models for SAC. What a policy is expected to do is drawn or summed up, as the kind of actions wants it.

    Attributes:
        target_entropy: of the policy that papers aim at, in nats.
    """

    target_entropy: float

    @abstractmethod
    def expect(
        self, critic: Critics, obs: Obs, generator: torch.Generator | None, legal: Tensor | None = None
    ) -> Expectation:
        """Value what the policy does now; gradients flow through value and log-probability.

        Args:
            critic: made by this model, or a copy of it.
            obs: [B, *obs_shape] tensor, or nested dicts and tuples of them.
            generator: draws actions, where they are drawn.
            legal: [B, n] bool, discrete actions that may be chosen; a row without any has them all. None: all.
        """


class SoftActorCritic(SoftModel):
    """A squashed normal policy and critics, for continuous actions (Haarnoja et al. 2018, arXiv:1812.05905).

    Actions are a Box of one axis, float32, with finite bounds. What a policy does is one drawn action, and its
    log-probability is that of the action scaled to [-1, 1], so that the units of the environment do not matter.

    Args:
        options: see `OffPolicyActorCritic`.
    """

    def expect(
        self, critic: Critics, obs: Obs, generator: torch.Generator | None, legal: Tensor | None = None
    ) -> Expectation:
        action, log_probability = self.actor(obs).draw(generator)
        return Expectation(critic(obs, action).amin(0), log_probability + self._log_scale)

    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        self.bounds = ActionRange(action_space)
        self.target_entropy = -float(self.bounds.num_components)
        self._log_scale = float(self.bounds.log_half_range.sum())

    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        return SquashedNormalActor(obs_spec, self.bounds, **options)

    def _make_critic(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> Critics:
        return ContinuousCritics(obs_spec, self.bounds, **options)


class DiscreteSoftActorCritic(SoftModel):
    """A policy over discrete actions and critics (Christodoulou 2019, arXiv:1910.07207).

    What a policy does is summed over all actions, so nothing is drawn.

    Args:
        options: see `OffPolicyActorCritic`.
    """

    def expect(
        self, critic: Critics, obs: Obs, generator: torch.Generator | None, legal: Tensor | None = None
    ) -> Expectation:
        policy = self.actor(obs)
        if legal is not None:
            policy = policy.masked(legal | ~legal.any(1, keepdim=True))
        probability = policy.logits.exp()
        value = (probability * cast(DiscreteCritics, critic).all_actions(obs).amin(0)).sum(1)
        return Expectation(value, -policy.entropy())

    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        if not isinstance(action_space, spaces.Discrete):
            raise ValueError(f"actions are {action_space}; use Discrete, or SoftActorCritic for a Box")
        self.num_actions = count_actions(action_space)
        self.target_entropy = 0.98 * math.log(self.num_actions)

    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        return CategoricalActor(obs_spec, self.num_actions, **options)

    def _make_critic(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> Critics:
        return DiscreteCritics(obs_spec, self.num_actions, **options)
