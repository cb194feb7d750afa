"""Critics: Q values of an actor's actions, of several networks at once (twins: Fujimoto et al. 2018, arXiv:1802.09477).

Images go through convolutions that the critics share, all else straight into the dense layers of each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.layers.activations import ActivationName
from surreal.model.layers.conv import ConvStage
from surreal.model.off_policy.action_range import ActionRange
from surreal.model.off_policy.ensemble import EnsembleMLP
from surreal.model.torso import Torso


class Critics(Module):
    """Base of critics, which says what learners ask them.

    Args:
        obs_spec: kind of one observation.
        num_inputs: of the dense layers beside the observation's features.
        num_outputs: of each network.
        count: networks, >= 1.
        hiddens: units of the dense layers, each >= 1.
        convolutions: see `Torso`.
        image_axes: see `Torso`.
        activation: after each hidden layer.
        layer_norm: normalise before each activation.
        generator: draws the initial values; None uses torch's global one.
    """

    def __init__(
        self,
        obs_spec: ObsSpec,
        num_inputs: int,
        num_outputs: int,
        *,
        count: int,
        hiddens: Sequence[int],
        convolutions: Sequence[ConvStage] | None = None,
        image_axes: str = "auto",
        activation: ActivationName = "relu",
        layer_norm: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.torso = Torso(obs_spec, convolutions=convolutions, image_axes=image_axes, generator=generator)
        sizes = (self.torso.num_features + num_inputs, *hiddens, num_outputs)
        self.dense = EnsembleMLP(count, sizes, activation=activation, layer_norm=layer_norm, generator=generator)

    @abstractmethod
    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Value actions in the units of the environment.

        Args:
            obs: [B, *obs_shape] tensor, or nested dicts and tuples of them.
            action: [B, *action_shape].

        Returns:
            [count, B] float32.
        """


class ContinuousCritics(Critics):
    """Critics that read the action, scaled to [-1, 1], beside the observation.

    Args:
        obs_spec: kind of one observation.
        bounds: of the actions.
        options: see `Critics`.
    """

    def __init__(self, obs_spec: ObsSpec, bounds: ActionRange, **options: Any) -> None:
        super().__init__(obs_spec, bounds.num_components, 1, **options)
        self.bounds = bounds

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        return self._values(obs, action, None)

    def first(self, obs: Obs, action: Tensor) -> Tensor:
        """Value actions by the first network alone, [B] float32: half of the work of two."""
        return self._values(obs, action, 1).squeeze(0)

    def _values(self, obs: Obs, action: Tensor, members: int | None) -> Tensor:
        inputs = torch.cat((self.torso.forward(obs), self.bounds.to_scaled(action)), dim=-1)
        return self.dense.forward(inputs, members).squeeze(-1)


class DiscreteCritics(Critics):
    """Critics that give the values of all actions.

    Args:
        obs_spec: kind of one observation.
        num_actions: >= 1.
        options: see `Critics`.
    """

    def __init__(self, obs_spec: ObsSpec, num_actions: int, **options: Any) -> None:
        super().__init__(obs_spec, 0, num_actions, **options)

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        values = self.all_actions(obs)
        return values.gather(2, action.expand(len(values), -1).unsqueeze(2)).squeeze(2)

    def all_actions(self, obs: Obs) -> Tensor:
        """Value all actions, [count, B, num_actions] float32."""
        return self.dense.forward(self.torso.forward(obs))
