"""`ComposedModel`: a torso, perhaps a recurrent core, and heads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from surreal.model.activations import get_activation
from surreal.model.base import LazyModel, make_generator
from surreal.model.conv import Convolution, read_convolutions
from surreal.model.core import LSTMCore
from surreal.model.torso import Torso, check_hiddens
from surreal.specs import ObsSpec
from surreal.types import Obs


class ComposedModel(LazyModel):
    """Base of our own models. A subclass makes its heads in `_build_heads`, and calls `features` in `forward`.

    It needs no observation shape: without `obs_spec` the parameters are created at the first batch, or from the first
    parameters that are loaded.

    Args:
        hiddens: units of the dense layers (each >= 1); more units fit more and compute longer.
        convolutions: for images, before the dense layers: `nature`, `a3c`, `universe`, or a list of
            `{type: convolution, n_filters, filter_size, stride, border, activation}`; see `surreal.model.conv`.
            None takes images as vectors.
        activation: after each dense layer; see `surreal.model.activations`.
        use_lstm: remember earlier observations of the episode in an LSTM behind the dense layers.
        lstm_size: its units, >= 1; more remember more and compute longer.
        obs_spec: kind of the observations, if known.
        seed: of the initial parameters; None draws them from torch's global generator.
    """

    def __init__(
        self,
        hiddens: Sequence[int] = (64, 64),
        *,
        convolutions: str | Sequence[Convolution | Mapping[str, Any]] | None = None,
        activation: str = "relu",
        use_lstm: bool = False,
        lstm_size: int = 64,
        obs_spec: ObsSpec | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        get_activation(activation)
        self.hiddens = check_hiddens(hiddens)
        self._convolutions = None if convolutions is None else read_convolutions(convolutions)
        self._activation = activation
        self._lstm_size = lstm_size if use_lstm else None
        self._seed = seed
        if use_lstm:
            if lstm_size < 1:
                raise ValueError(f"lstm_size is {lstm_size}; it must be >= 1")
            self.state_shape = (2, lstm_size)
        if obs_spec is not None:
            self.materialize(obs_spec)

    def features(
        self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Compute what the heads read.

        Args:
            obs: as in `forward`.
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
            hiddens=self.hiddens,
            activation=self._activation,
            generator=generator,
        )
        num_features = self.torso.num_features
        self.core: LSTMCore | None = None
        if self._lstm_size is not None:
            self.core = LSTMCore(num_features, self._lstm_size, generator)
            num_features = self.core.num_features
        self._trunk = self.torso, self.core  # without the detour that torch makes to find a module by name
        self._build_heads(num_features, generator)

    @abstractmethod
    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        """Create the heads, on the CPU; called once, under `lock`."""

    def extra_repr(self) -> str:
        """Describe the constructor's arguments, for `repr`."""
        return f"hiddens={list(self.hiddens)}, lstm_size={self._lstm_size}"
