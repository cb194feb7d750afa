"""Critics of actions: several networks with the same shape, computed together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import KAF, ActivationName, KafSettings, get_activation, inputs_per_unit, read_activation
from surreal.model.conv import ConvStage
from surreal.model.norms import NormKind
from surreal.model.off_policy.action_range import ActionRange
from surreal.model.off_policy.blocks import BlockKind, EnsembleDense, ResidualBlocks
from surreal.model.off_policy.critic_outputs import ScalarOutput
from surreal.model.torso import ImageAxes, Torso


class EnsembleMLP(nn.Module):
    """Dense layers of each member, with an activation between them.

    Args:
        sizes: features of the input, then units of each layer; the last is the output.
        norm: normalizes before each activation; see `EnsembleDense`.
        unit_weights: whether the hidden layers are `is_unit`, see `EnsembleDense`.
    """

    def __init__(
        self,
        members: int,
        sizes: Sequence[int],
        *,
        activation: ActivationName = "relu",
        norm: NormKind | None = None,
        blocks: BlockKind | None = None,
        unit_weights: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.members = members
        kind = read_activation(activation)
        *hidden, (before, after) = pairwise(sizes)
        self.blocks: ResidualBlocks | None = None
        if blocks is not None:
            hidden = []
            self.blocks = ResidualBlocks(blocks, sizes[0], sizes[1:-1], str(kind), norm, members, generator)
        self.hidden = nn.ModuleList(
            EnsembleDense(
                members, inputs, units * inputs_per_unit(kind), norm=norm, is_unit=unit_weights, generator=generator
            )
            for inputs, units in hidden
        )
        self._activation = None if isinstance(kind, KafSettings) else get_activation(kind, in_place=True)
        self.learned = nn.ModuleList(KAF(units, kind, members) for _, units in hidden if isinstance(kind, KafSettings))
        self.output = EnsembleDense(members, before, after, generator=generator)

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Compute [members, B, sizes[-1]] from [B, sizes[0]] float32, for the first `members`, None: all."""
        count = self.members if members is None else members
        outputs = features.expand(count, *features.shape)
        if self.blocks is not None:
            outputs = self.blocks.forward(outputs, members)
        for i, layer in enumerate(self.hidden):
            outputs = layer.forward(outputs, members)
            if self._activation is None:
                outputs = self.learned[i].forward(outputs, members)
            else:
                outputs = self._activation(outputs)
        return self.output.forward(outputs, members)


class Critics(Module):
    """Base of critics: the interface that learners use.

    Args:
        num_inputs: number of inputs of the dense layers in addition to the observation's features.
        count: networks, >= 1.
        hiddens: units of the dense layers, each >= 1.
        unit_weights: whether the weights of each hidden unit keep the length 1.
        output: what a value is computed from.
    """

    def __init__(
        self,
        obs_spec: ObsSpec,
        num_inputs: int,
        num_values: int,
        *,
        count: int,
        hiddens: Sequence[int],
        output: ScalarOutput | None = None,
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
        self.output = ScalarOutput() if output is None else output
        sizes = (self.torso.num_features + num_inputs, *hiddens, num_values * self.output.size)
        options: dict[str, Any] = {"norm": norm, "blocks": blocks, "unit_weights": unit_weights}
        self.dense = EnsembleMLP(count, sizes, activation=activation, **options, generator=generator)

    @abstractmethod
    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Value actions in the units of the environment.

        Args:
            obs: [B, *obs_shape] tensor, or nested dicts and tuples of them.
            action: [B, *action_shape].

        Returns:
            [count, B] float32.
        """

    @abstractmethod
    def outputs(self, obs: Obs, action: Tensor) -> Tensor:
        """Compute what values are computed from, [count, B, output.size] float32, from the arguments of `forward`."""


class ContinuousCritics(Critics):
    """Critics that read the action, scaled to [-1, 1], in addition to the observation."""

    def __init__(self, obs_spec: ObsSpec, bounds: ActionRange, **options: Any) -> None:
        super().__init__(obs_spec, bounds.num_components, 1, **options)
        self.bounds = bounds

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        return self.output.forward(self.outputs(obs, action))

    def outputs(self, obs: Obs, action: Tensor, members: int | None = None) -> Tensor:
        inputs = torch.cat((self.torso.forward(obs), self.bounds.to_scaled(action)), dim=-1)
        return self.dense.forward(inputs, members)

    def first(self, obs: Obs, action: Tensor) -> Tensor:
        """Value actions by the first network alone, [B] float32: half of the work of two."""
        return self.output.forward(self.outputs(obs, action, 1)).squeeze(0)


class DiscreteCritics(Critics):
    """Critics that give the values of all actions."""

    def __init__(self, obs_spec: ObsSpec, num_actions: int, **options: Any) -> None:
        super().__init__(obs_spec, 0, num_actions, **options)

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        values = self.all_actions(obs)
        return values.gather(2, action.expand(len(values), -1).unsqueeze(2)).squeeze(2)

    def outputs(self, obs: Obs, action: Tensor) -> Tensor:
        return self.forward(obs, action).unsqueeze(-1)

    def all_actions(self, obs: Obs) -> Tensor:
        """Value all actions, [count, B, num_actions] float32."""
        return self.dense.forward(self.torso.forward(obs))
