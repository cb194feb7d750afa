"""`Model`: the base of the networks that agents act with and learners train. `ComposedModel`: of the built-in ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.errors import ContractError
from surreal.base.pytorch import Module
from surreal.base.ranges import NonNegativeInt, PositiveInt, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import ActivationName, read_activation
from surreal.model.conv import ConvStage, read_convolutions
from surreal.model.filters import ObsFilter, ReturnFilter
from surreal.model.recurrent import Core, DilatedLSTMCore, LSTMCore
from surreal.model.torso import ImageAxes, Torso


class Model(Module, ABC):
    """A network over observations. Subclasses implement `forward`; all other methods have defaults.

    A subclass that knows its shapes creates its layers in the constructor, and that is all:

        class Net(Model):
            def __init__(self, action_space):
                super().__init__()
                self.q = nn.Linear(4, action_space)

            def forward(self, obs):
                return self.q(obs)

    Agents call it with observations [B, ...], learners of trajectories with [T + 1, B, ...]: layers accept any leading
    axes, or flatten them.

    One that waits for the first observation extends `LazyModel`. One with a memory sets `state_shape`; it alone is
    called with `state` and `is_first`, and returns its new state along with its output.
    """

    #: units of the dense layers of `value_network`, which gives the value of the state; None if the value shares the
    #: policy's network
    value_hiddens: Sequence[int] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.obs_filter: ObsFilter | None = None  #: normalizes observations; learners count their batches in it
        self.return_filter: ReturnFilter | None = None  #: scales rewards for these learners, and counts their returns

    @abstractmethod
    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute the outputs for a batch [B], or for sequences [T, B].

        In an agent this runs on the acting thread, under `lock` and in inference mode; in a learner on the learner's
        thread, with gradients.

        Args:
            obs: [B, *obs_shape] or [T, B, *obs_shape] tensor, or nested dicts and tuples of them, in the dtype of the
                environment.
            state: [B, *state_shape] recurrent state before (the first of) these observations.
            is_first: [B] or [T, B] bool: an episode begins here, so the state is cleared before.

        Returns:
            The output; of a recurrent model the output and the state afterwards, [B, *state_shape].
        """


class LazyModel(Model):
    """A model whose layers are created when the kind of its observations is known.

    It learns that from `materialize(obs_spec)`, from the header of parameters that it is given, or from its first
    batch, which is then [B, ...]. A subclass creates its layers in `_build`, and calls `_ensure_built` in `forward`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.obs_spec: ObsSpec | None = None  #: kind of one observation, None while there are no layers
        self._header: dict[str, Any] = {}

    @property
    def is_materialized(self) -> bool:
        return self.obs_spec is not None

    def materialize(self, obs_spec: ObsSpec) -> None:
        """Create the layers for observations of this kind."""
        if self.obs_spec is not None:
            return
        with self.lock:
            if self.obs_spec is None:
                # The first batch often comes in inference mode, where parameters could never be trained.
                with torch.inference_mode(False), torch.enable_grad():
                    self._build(obs_spec)
                    self.to(self.device)
                self._header = {"obs": obs_spec.to_json()}
                self.obs_spec = obs_spec

    def materialize_from(self, header: Mapping[str, Any]) -> None:
        """Create the layers for the observations in a header; raises `ContractError` if it cannot."""
        try:
            self.materialize(ObsSpec.from_json(header["obs"]))
        except (KeyError, TypeError, ValueError) as error:
            problem = "say nothing of observations" if "obs" not in header else f"are for other observations: {error}"
            raise ContractError(f"the parameters do not fit this model: they {problem}") from error

    def header(self) -> dict[str, Any]:
        return self._header

    @abstractmethod
    def _build(self, obs_spec: ObsSpec) -> None:
        """Create the layers, on the CPU; called once, under `lock`."""

    def _ensure_built(self, obs: Obs) -> None:
        if self.obs_spec is None:
            self.materialize(ObsSpec.from_obs(tree.map_leaves(lambda leaf: leaf[0].cpu(), obs)))


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
        activation: activation after each dense layer: none, sigmoid, tanh, relu, relu6, elu, softmax, softplus,
            leaky_relu, gelu, silu, mish, selu, softsign or hardtanh; or kaf,
            which learns its shape, with `{type: kaf, boundary, size, kernel, gamma}`; see `surreal.model.activations`.
        norm: normalization of each dense layer's outputs before the activation: layer, or rms. None: nothing does.
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
        norm: Literal["layer", "rms"] | None = None,
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
        self._norm = norm
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
        """Compute the input of the heads, [..., num_features] float32, and the state afterwards, None without a core.

        Arguments as in `forward`; without a state, a recurrent model begins with a cleared one.
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
            norm=self._norm,
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
        return f"hiddens={list(self.hiddens)}, lstm_size={self._lstm_size}"


def make_generator(seed: int | None) -> torch.Generator | None:
    """Return a generator for the initial parameters; None means torch's global one."""
    if seed is None:
        return None
    # Neighboring seeds of torch's generator give related streams; SeedSequence spreads them.
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
