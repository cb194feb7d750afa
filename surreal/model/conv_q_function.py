"""`ConvQFunction`: values of all discrete actions, from an image through convolutions and dense layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from surreal.errors import ContractError
from surreal.model.activations import get_activation
from surreal.model.base import LazyModel, make_generator
from surreal.model.conv import Convolution, ConvTorso, count_conv_features, read_convolutions
from surreal.model.mlp import MLP
from surreal.model.q_function import combine_dueling, count_actions
from surreal.specs import ObsSpec
from surreal.types import Obs

_TORSO_WEIGHT = "torso.layers.0.weight"


class ConvQFunction(LazyModel):
    """Convolutions and dense layers from an image, or a stack of frames, to Q values (Mnih et al. 2015).

    Images are [channels, height, width], as frame stacks are; a single gray frame [height, width] is one channel.
    uint8 is scaled by 1/255. It needs no observation shape: without `obs_spec` the parameters are created at the first
    batch, or from the first parameters that are loaded.

    Args:
        hiddens: units of the dense layers (each >= 1) between the convolutions and the values; more fit more.
        action_space: number of actions (>= 1), or a Discrete space from 0.
        convolutions: `nature`, `a3c`, `universe`, or a list of `{type: convolution, n_filters, filter_size, stride,
            border, activation}`; see `surreal.model.conv`.
        activation: after each dense layer; see `surreal.model.activations`.
        dueling: as in `QFunction`, on shared dense layers.
        obs_spec: kind of the observations, if known.
        seed: of the initial parameters; None draws them from torch's global generator.
    """

    def __init__(
        self,
        hiddens: Sequence[int] = (512,),
        *,
        action_space: int | spaces.Discrete,
        convolutions: str | Sequence[Convolution | Mapping[str, Any]] = "nature",
        activation: str = "relu",
        dueling: bool = False,
        obs_spec: ObsSpec | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.hiddens = tuple(hiddens)
        self.num_actions = count_actions(action_space)
        self.dueling = dueling
        self._convolutions = read_convolutions(convolutions)
        self._activation = activation
        self._seed = seed
        self._num_channels = 0
        if any(units < 1 for units in self.hiddens):
            raise ValueError(f"hiddens is {list(self.hiddens)}; every layer needs >= 1 units")
        get_activation(activation)
        if obs_spec is not None:
            self.materialize(obs_spec)

    def forward(self, obs: Obs) -> Tensor:
        """Compute Q values.

        Args:
            obs: [B, channels, height, width] or [B, height, width] tensor, uint8 0-255 or float.

        Returns:
            [B, num_actions] float32
        """
        images = _read_images(obs)
        if not self.is_materialized:
            self._ensure_built_for(tuple(images.shape[1:]))
        output: Tensor = self.network(self.torso(images))
        return combine_dueling(output) if self.dueling else output

    def materialize(self, obs_spec: ObsSpec) -> None:
        """Create the layers for images of this kind.

        Raises:
            ValueError: the observations are not images, or too small.
        """
        shape = obs_spec.leaves[0].shape
        if not obs_spec.is_array or len(shape) not in (2, 3):
            raise ValueError(f"observations are not images [channels, height, width]: {obs_spec.to_json()['leaves']}")
        self._ensure_built_for(shape if len(shape) == 3 else (1, *shape))

    def materialize_from(self, tensors: Mapping[str, Tensor]) -> None:
        """Create the layers that `tensors` would fill.

        Raises:
            ContractError: the first layers are not among them.
        """
        weight = tensors.get(_TORSO_WEIGHT)
        if weight is None or weight.ndim != 4:
            diff = tuple(f"{key}: {list(tensor.shape)} -> missing" for key, tensor in tensors.items())
            raise ContractError(f"the parameters do not fit this model: they have no {_TORSO_WEIGHT}", diff=diff)
        self._set_channels(weight.shape[1])
        super().materialize_from(tensors)

    @property
    def _input_weight(self) -> str:
        return "network.layers.0.weight"

    def _ensure_built_for(self, shape: tuple[int, ...]) -> None:
        num_channels, height, width = shape
        num_features = count_conv_features(self._convolutions, height, width)
        self._set_channels(num_channels)
        self._ensure_built(num_features)

    def _set_channels(self, num_channels: int) -> None:
        with self.lock:
            if not self.is_materialized:
                self._num_channels = num_channels

    def _build(self, num_features: int) -> None:
        generator = make_generator(self._seed)
        self.torso = ConvTorso(self._num_channels, self._convolutions, generator)
        # With dueling, output 0 is the state's value.
        sizes = (num_features, *self.hiddens, self.num_actions + self.dueling)
        self.network = MLP(sizes, self._activation, generator=generator)

    def extra_repr(self) -> str:
        """Describe the constructor's arguments, for `repr`."""
        return f"hiddens={list(self.hiddens)}, action_space={self.num_actions}, dueling={self.dueling}"


def _read_images(obs: Obs) -> Tensor:
    if not isinstance(obs, Tensor) or obs.dim() not in (3, 4):
        kind = list(obs.shape) if isinstance(obs, Tensor) else type(obs).__name__
        raise ValueError(f"observations are {kind}; they must be images [B, channels, height, width]")
    images: Tensor = obs
    if images.dtype is torch.uint8:
        images = images.to(torch.float32).mul_(1.0 / 255.0)
    elif images.dtype is not torch.float32:
        images = images.to(torch.float32)
    return images if images.dim() == 4 else images.unsqueeze(1)
