"""`ComposedModel`: a torso, an optional recurrent core, and heads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from surreal.base.ranges import NonNegativeInt, PositiveInt, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import ActivationName, read_activation
from surreal.model.base import LazyModel, make_generator
from surreal.model.conv import ConvStage, read_convolutions
from surreal.model.recurrent import Core, DilatedLSTMCore, LSTMCore
from surreal.model.torso import ImageAxes, Torso


class ComposedModel(LazyModel):
    """Base of the built-in models. A subclass makes its heads in `_build_heads`, and calls `features` in `forward`.

    It needs no observation shape: without `obs_spec` the parameters are created at the first batch, or from the first
    parameters that are loaded.

    Args:
        hiddens: units of the dense layers; more units fit more and compute longer.
        convolutions: for images, before the dense layers: `nature`, `a3c`, `universe`, `impala`, or a list of
            `{type: convolution, n_filters, filter_size, stride, border, activation}`; see `surreal.model.conv`.
            None takes images as vectors.
        image_axes: layout of images with 3 axes: channels_first, channels_last, or auto, which infers it from the
            shape.
        activation: activation after each dense layer: none, sigmoid, tanh, relu, relu6, elu, softmax, softplus; or kaf,
            which learns its shape, with `{type: kaf, boundary, size, kernel, gamma}`; see `surreal.model.activations`.
        use_lstm: whether an LSTM after the dense layers remembers earlier observations of the episode.
        lstm_size: units of the LSTM; more units remember more and compute longer.
        lstm_type: Basic, or Dilated: several states that are updated in turn, to remember for longer.
        lstm_num_cores: number of states of a dilated LSTM; more states remember for longer.
        obs_spec: kind of the observations, if known.
        seed: seed of the initial parameters; None draws them from torch's global generator.
    """

    @checked
    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (64, 64),
        *,
        convolutions: str | Sequence[ConvStage | Mapping[str, Any]] | None = None,
        image_axes: ImageAxes = "auto",
        activation: ActivationName = "relu",
        use_lstm: bool = False,
        lstm_size: PositiveInt = 64,
        lstm_type: Literal["Basic", "Dilated"] = "Basic",
        lstm_num_cores: PositiveInt = 8,
        obs_spec: ObsSpec | None = None,
        seed: NonNegativeInt | None = None,
    ) -> None:
        super().__init__()
        read_activation(activation)
        self.hiddens = tuple(hiddens)
        self._convolutions = None if convolutions is None else read_convolutions(convolutions)
        self._image_axes = image_axes
        self._activation = activation
        self._lstm_size = lstm_size if use_lstm else None
        self._lstm_num_cores = lstm_num_cores if lstm_type == "Dilated" else None
        self._seed = seed
        if use_lstm:
            self.state_shape = (2, lstm_size)
            if self._lstm_num_cores is not None:
                self.state_shape = (self._lstm_num_cores, *self.state_shape)
        if obs_spec is not None:
            self.materialize(obs_spec)

    def features(
        self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the input of the heads.

        Args:
            obs: observations, as in `forward`.
            state: likewise; without one, a recurrent model begins with a cleared one.
            is_first: likewise.

        Returns:
            [..., num_features] float32, and the state afterwards; None without a core.
        """
        if self.obs_spec is None:
            self._ensure_built(obs)
        torso, core = self._trunk
        features = torso.forward(obs)
        if core is None:
            return features, None
        if state is None:
            state = features.new_zeros(features.shape[-2], *core.state_shape)
        return core.forward(features, state, is_first)

    def _build(self, obs_spec: ObsSpec) -> None:
        generator = make_generator(self._seed)
        self.torso = Torso(
            obs_spec,
            convolutions=self._convolutions,
            image_axes=self._image_axes,
            hiddens=self.hiddens,
            activation=self._activation,
            generator=generator,
        )
        num_features = self.torso.num_features
        self.core: Core | None = None
        if self._lstm_size is not None:
            if self._lstm_num_cores is None:
                self.core = LSTMCore(num_features, self._lstm_size, generator)
            else:
                self.core = DilatedLSTMCore(num_features, self._lstm_size, self._lstm_num_cores, generator)
            num_features = self.core.num_features
        self._trunk = self.torso, self.core  # without the detour that torch makes to find a module by name
        self._build_heads(num_features, generator)

    @abstractmethod
    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        """Create the heads, on the CPU; called once, under `lock`."""

    def extra_repr(self) -> str:
        """Describe the constructor's arguments, for `repr`."""
        return f"hiddens={list(self.hiddens)}, lstm_size={self._lstm_size}"
