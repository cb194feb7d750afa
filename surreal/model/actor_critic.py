"""`ActorCritic`: a policy and the value of the state, from one torso."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor

from surreal.model.composed import ComposedModel
from surreal.model.distributions import Distribution
from surreal.model.heads import ValueHead, make_policy_head
from surreal.model.layers.activations import ActivationName
from surreal.types import Obs


class PolicyValue(NamedTuple):
    """What an actor-critic gives for a batch of any leading axes."""

    policy: Distribution
    value: Tensor  #: [...] float32


class ActorCritic(ComposedModel):
    """A policy and a value that share torso and core (Mnih et al. 2016, arXiv:1602.01783).

    Args:
        hiddens: units of the dense layers (each >= 1); more units fit more and compute longer.
        action_space: Discrete from 0, or Box of one axis, float32: a normal distribution, which knows no bounds.
        activation: after each dense layer; see `surreal.model.layers.activations`.
        options: see `ComposedModel`.
    """

    def __init__(
        self,
        hiddens: Sequence[int] = (64, 64),
        *,
        action_space: gymnasium.Space[Any],
        activation: ActivationName = "tanh",
        **options: Any,
    ) -> None:
        self.action_space = action_space
        make_policy_head(1, action_space)  # a space without a policy is refused now, not at the first batch
        super().__init__(hiddens, activation=activation, **options)

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute a `PolicyValue`; with `use_lstm`, this and the state afterwards."""
        features, state = self.features(obs, state, is_first)
        output = PolicyValue(self.policy.forward(features), self.value.forward(features))
        return output if state is None else (output, state)

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.policy = make_policy_head(num_features, self.action_space, generator)
        self.value = ValueHead(num_features, generator)
