"""Predictions of an environment, for curiosity: an inverse and a forward model.

Pathak et al. 2017, arXiv:1705.05363, section 2. An encoder turns observations into features. The inverse model predicts
the action of a step from the features before and after it, so the features contain little more than what actions can
change. The forward model predicts the next features from the features and the action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.pytorch import Module
from surreal.base.ranges import PositiveInt, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import ActivationName, read_activation
from surreal.model.conv import ConvStage, read_convolutions
from surreal.model.distributions import Distribution
from surreal.model.heads import make_policy_head
from surreal.model.mlp import MLP
from surreal.model.torso import Torso


class Foreseen(NamedTuple):
    """Predictions for steps of any leading axes."""

    action: Distribution  #: that led from one observation to the next, by the inverse model
    features: Tensor  #: [..., num_features] float32 of the next observation; no gradient flows through them
    predicted: Tensor  #: [..., num_features] float32: its prediction; gradients flow only into the forward model


class Dynamics(Module):
    """An encoder of observations, an inverse model and a forward model.

    Args:
        action_space: Discrete, MultiDiscrete or MultiBinary, from 0; or Box of one axis, float32.
        hiddens: units of the encoder's dense layers; the last layer gives the features. More units distinguish more.
        convolutions: convolutions of the encoder, for images, before these layers; see `surreal.model.conv`. None takes
            images as vectors.
        activation: activation after each layer of all three networks.
        units: units of the single hidden layer of the inverse and the forward model.

    Raises:
        ValueError: a layer has no units, or there is no policy for such a space of actions.
    """

    @checked
    def __init__(
        self,
        obs_spec: ObsSpec,
        action_space: gymnasium.Space[Any],
        *,
        hiddens: Sequence[PositiveInt] = (64,),
        convolutions: str | Sequence[ConvStage | Mapping[str, Any]] | None = None,
        activation: ActivationName = "elu",
        units: PositiveInt = 64,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.action_space = action_space
        read_activation(activation)
        self.encoder = Torso(
            obs_spec,
            convolutions=None if convolutions is None else read_convolutions(convolutions),
            hiddens=hiddens,
            activation=activation,
            generator=generator,
        )
        num_features = self.encoder.num_features
        self.inverse = MLP((2 * num_features, units), output_activation=activation, generator=generator)
        self.action = make_policy_head(units, action_space, generator)
        action = action_features(action_space, torch.as_tensor(action_space.sample()))
        sizes = (num_features + action.shape[-1], units, num_features)
        self.ahead = MLP(sizes, activation, generator=generator)

    def forward(self, obs: Obs, action: Tensor) -> Foreseen:
        """Predict the action and the next features of each step of trajectories, [T, B].

        `obs` [T + 1, B, *obs_shape] are before and after each step; `action` is [T, B, *action_shape].
        """
        features = self.encoder.forward(obs)
        before, after = features[:-1], features[1:]
        guess = self.action.forward(self.inverse.forward(torch.cat((before, after), dim=-1)))
        # The forward model alone learns to foresee: an encoder that did would find features that never change.
        known = torch.cat((before.detach(), action_features(self.action_space, action)), dim=-1)
        return Foreseen(guess, after.detach(), self.ahead.forward(known))


def action_features(action_space: gymnasium.Space[Any], action: Tensor) -> Tensor:
    """Write actions [..., *action_shape] as numbers [..., n] float32: choices one-hot, others unchanged."""
    if isinstance(action_space, spaces.Discrete):
        return _one_hot(action, int(action_space.n))
    if isinstance(action_space, spaces.MultiDiscrete):
        return torch.cat([_one_hot(action[..., i], int(n)) for i, n in enumerate(action_space.nvec)], dim=-1)
    return action.to(torch.float32)


def _one_hot(choice: Tensor, count: int) -> Tensor:
    # Torch's own form looks for the largest number, which waits for a GPU and cannot be part of a graph.
    return (choice.long().unsqueeze(-1) == torch.arange(count, device=choice.device)).to(torch.float32)
