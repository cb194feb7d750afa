"""Actors: from observations to an action, or to a distribution over actions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import ActivationName, inputs_per_unit, make_activation, read_activation
from surreal.model.conv import ConvStage
from surreal.model.distributions import Categorical, Distribution
from surreal.model.mlp import Dense
from surreal.model.norms import BatchNormSettings, NormKind, make_norm
from surreal.model.off_policy.action_range import ActionRange, SquashedNormal, StateDependentNormal
from surreal.model.off_policy.blocks import BlockKind, ResidualBlocks
from surreal.model.torso import ImageAxes, Torso

#: Bounds of the logarithm of a squashed normal's standard deviation: values outside are cut (arXiv:1801.01290).
MIN_LOG_SIGMA, MAX_LOG_SIGMA = -20.0, 2.0


class ActorBody(nn.Module):
    """Base of all actors: from observations to the outputs of one dense layer.

    Args:
        hiddens: units of the dense layers before it, each >= 1.
        norm: normalizes the hidden layers' outputs before the activation; see `surreal.model.norms`.
        unit_weights: whether the weights of each hidden unit keep the length 1.
    """

    def __init__(
        self,
        obs_spec: ObsSpec,
        num_outputs: int,
        *,
        hiddens: Sequence[int],
        convolutions: Sequence[ConvStage] | None = None,
        image_axes: ImageAxes = "auto",
        activation: ActivationName = "relu",
        norm: NormKind | None = None,
        blocks: BlockKind | None = None,
        unit_weights: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.torso = Torso(obs_spec, convolutions=convolutions, image_axes=image_axes, generator=generator)
        kind = read_activation(activation)
        self.blocks: ResidualBlocks | None = None
        last = hiddens[-1] if hiddens else self.torso.num_features
        if blocks is not None:
            self.blocks = ResidualBlocks(blocks, self.torso.num_features, hiddens, str(kind), norm, generator=generator)
            hiddens, norm = (), None
        sizes, inputs = (self.torso.num_features, *hiddens), inputs_per_unit(kind)
        has_bias = not isinstance(norm, BatchNormSettings)
        self.hidden = nn.ModuleList(
            Dense(before, after * inputs, generator, has_bias=has_bias, is_unit=unit_weights)
            for before, after in pairwise(sizes)
        )
        self.norms = None if norm is None else nn.ModuleList(make_norm(norm, units * inputs) for units in hiddens)
        self._activations = [make_activation(kind, units) for units in hiddens]
        self.learned = nn.ModuleList(each for each in self._activations if isinstance(each, nn.Module))
        self.num_features = last
        self.output = Dense(last, num_outputs, generator)

    def forward(self, obs: Obs) -> Tensor:
        """Compute [..., num_outputs] float32 from [..., *obs_shape]."""
        return self.output.forward(self.features(obs))

    def features(self, obs: Obs) -> Tensor:
        """Compute the inputs of the last layer, [..., num_features] float32."""
        features = self.torso.forward(obs)
        if self.blocks is not None:
            features = self.blocks.forward(features)
        for i, (layer, activation) in enumerate(zip(self.hidden, self._activations, strict=True)):
            features = layer.forward(features)
            if self.norms is not None:
                features = self.norms[i].forward(features)
            if activation is not None:
                features = activation(features)
        return features


class DeterministicActor(nn.Module):
    """One action for each observation, within the bounds by tanh (Lillicrap et al. 2016, arXiv:1509.02971)."""

    def __init__(self, obs_spec: ObsSpec, bounds: ActionRange, **options: Any) -> None:
        super().__init__()
        self.body = ActorBody(obs_spec, bounds.num_components, **options)
        self.bounds = bounds

    def forward(self, obs: Obs) -> Tensor:
        """Compute actions [..., n] float32, in the units of the environment."""
        return self.bounds.to_env(self.body.forward(obs).tanh())


class SquashedNormalActor(nn.Module):
    """A `SquashedNormal` whose mean and standard deviation both depend on the observation."""

    def __init__(self, obs_spec: ObsSpec, bounds: ActionRange, **options: Any) -> None:
        super().__init__()
        self.body = ActorBody(obs_spec, 2 * bounds.num_components, **options)
        self.bounds = bounds

    def forward(self, obs: Obs) -> SquashedNormal:
        """Return the distribution over actions [..., n]."""
        mean, log_sigma = self.body.forward(obs).chunk(2, dim=-1)
        return SquashedNormal(mean, log_sigma.clamp(MIN_LOG_SIGMA, MAX_LOG_SIGMA), self.bounds)


class StateDependentActor(nn.Module):
    """A `StateDependentNormal`: its noise is a linear function of the features of the last hidden layer.

    Args:
        log_sigma: initial logarithm of the standard deviation of each entry of the noise matrix.
    """

    def __init__(self, obs_spec: ObsSpec, bounds: ActionRange, *, log_sigma: float, **options: Any) -> None:
        super().__init__()
        self.body = ActorBody(obs_spec, bounds.num_components, **options)
        self.log_sigma = nn.Parameter(torch.full((self.body.num_features, bounds.num_components), log_sigma))
        self.bounds = bounds

    def forward(self, obs: Obs) -> StateDependentNormal:
        """Return the distribution over actions [..., n]."""
        features = self.body.features(obs)
        log_sigma = self.log_sigma.clamp(MIN_LOG_SIGMA, MAX_LOG_SIGMA)
        return StateDependentNormal(self.body.output.forward(features), features, log_sigma, self.bounds)


class CategoricalActor(nn.Module):
    """A distribution over discrete actions."""

    def __init__(self, obs_spec: ObsSpec, num_actions: int, **options: Any) -> None:
        super().__init__()
        self.body = ActorBody(obs_spec, num_actions, **options)

    def forward(self, obs: Obs) -> Distribution:
        """Return a `Categorical` over [..., num_actions]."""
        return Categorical(self.body.forward(obs))
