"""Q-functions of discrete actions: plain, with noisy layers (Fortunato et al. 2018), and of quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import linear

from surreal.base.ranges import Positive, PositiveInt, checked
from surreal.base.types import Obs
from surreal.model.activations import get_activation
from surreal.model.base import ComposedModel
from surreal.model.conv import ConvStage
from surreal.model.heads import count_actions
from surreal.model.mlp import Dense, QHead, combine_dueling


class QFunction(ComposedModel):
    """A network from an observation to Q values (Mnih et al. 2013, arXiv:1312.5602).

    Args:
        hiddens: units of the dense layers; more units fit more and compute longer.
        action_space: number of actions (>= 1), or a Discrete space from 0.
        dueling: split the output into the state's value and the actions' advantages, Q = V + A - mean(A)
            (Wang et al. 2016 eq. 9, arXiv:1511.06581).
    """

    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (64, 64),
        *,
        action_space: int | spaces.Discrete,
        dueling: bool = False,
        **options: Any,
    ) -> None:
        self.num_actions = count_actions(action_space)
        self.dueling = dueling
        super().__init__(hiddens, **options)

    q: nn.Module  #: from features to what the head's layer gives

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute Q values, [..., num_actions] float32; with `use_lstm`, these and the state afterwards."""
        features, state = self.features(obs, state, is_first)
        q = self._modules["q"].forward(features)  # type: ignore[union-attr]  # see `Dense`
        return q if state is None else (q, state)

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.q = QHead(num_features, self.num_actions, dueling=self.dueling, generator=generator)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, action_space={self.num_actions}, dueling={self.dueling}"


class ConvQFunction(QFunction):
    """Convolutions and dense layers from an image, or a stack of frames, to Q values (Mnih et al. 2015).

    Images are [channels, height, width], as frame stacks are; a single gray frame [height, width] is one channel.
    uint8 is scaled by 1/255.

    Args:
        hiddens: units of the dense layers between the convolutions and the values; more fit more.
        convolutions: `nature`, `a3c`, `universe`, `impala`, or a list; see `ComposedModel`.
    """

    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (512,),
        *,
        convolutions: str | Sequence[ConvStage | Mapping[str, Any]] = "nature",
        **options: Any,
    ) -> None:
        super().__init__(hiddens, convolutions=convolutions, **options)


class NoisyDense(nn.Module):
    """A dense layer with factorized Gaussian noise: y = (mu_w + sigma_w * e_w) x + mu_b + sigma_b * e_b (eqs. 9 to 11).

    Args:
        sigma: initial size of the noise, > 0, divided by the root of `num_inputs`.
    """

    _weight_noise: Tensor
    _bias_noise: Tensor

    def __init__(
        self, num_inputs: int, num_outputs: int, *, sigma: float = 0.5, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(num_inputs)
        self.weight = nn.Parameter(torch.empty(num_outputs, num_inputs))
        self.bias = nn.Parameter(torch.empty(num_outputs))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        self.weight_sigma = nn.Parameter(torch.full((num_outputs, num_inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((num_outputs,), sigma * bound))
        self._is_noisy = False
        self.register_buffer("_weight_noise", torch.zeros(num_outputs, num_inputs), persistent=False)
        self.register_buffer("_bias_noise", torch.zeros(num_outputs), persistent=False)

    def draw_noise(self, generator: torch.Generator) -> None:
        """Turn the noise on."""
        inputs, outputs = (
            _scaled(torch.empty(size, device=self.weight.device).normal_(generator=generator))
            for size in reversed(self.weight.shape)
        )
        torch.outer(outputs, inputs, out=self._weight_noise)
        self._bias_noise.copy_(outputs)
        self._is_noisy = True

    def clear_noise(self) -> None:
        """Turn the noise off."""
        self._is_noisy = False

    def forward(self, features: Tensor) -> Tensor:
        """Compute [..., num_outputs] from [..., num_inputs] float32."""
        if not self._is_noisy:
            return linear(features, self.weight, self.bias)
        weight = torch.addcmul(self.weight, self.weight_sigma, self._weight_noise)
        return linear(features, weight, torch.addcmul(self.bias, self.bias_sigma, self._bias_noise))


class NoisyQHead(nn.Module):
    """Noisy dense layers from features (`sizes[0]`) and units (the others) to the values of all actions."""

    def __init__(
        self,
        sizes: Sequence[int],
        num_actions: int,
        *,
        dueling: bool,
        sigma: float,
        activation: str,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self._dueling = dueling
        self._activation = get_activation(activation, in_place=True)
        pairs = pairwise((*sizes, num_actions + dueling))
        self.layers = nn.ModuleList(NoisyDense(*pair, sigma=sigma, generator=generator) for pair in pairs)

    def forward(self, features: Tensor) -> Tensor:
        """Compute [..., num_actions] float32."""
        for layer in self.layers[:-1]:
            features = self._activation(layer.forward(features))
        output: Tensor = self.layers[-1].forward(features)
        return combine_dueling(output) if self._dueling else output


class NoisyQFunction(QFunction):
    """A `QFunction` whose dense layers are noisy.

    `QAgent` draws the noise of each turn in which a row explores, `DQNLearner` that of each network in each update;
    an epsilon is not needed in addition.

    Args:
        hiddens: units of the dense layers; more units fit more and compute longer.
        noise_sigma: initial size of the noise, which then is learned; raising it explores more.
    """

    @checked
    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (64, 64),
        *,
        action_space: int | spaces.Discrete,
        noise_sigma: Positive = 0.5,
        activation: str = "relu",
        **options: Any,
    ) -> None:
        get_activation(activation)
        if (norm := options.get("norm")) is not None:
            raise ValueError(f"norm is {norm!r}; noisy layers cannot have one, so leave it out")
        self._head_activation = activation
        self._noise_sigma = noise_sigma
        self._noisy_hiddens = tuple(hiddens)
        # The torso's own dense layers are none: all of them come after it, in the head.
        super().__init__((), action_space=action_space, activation=activation, **options)

    def draw_noise(self, generator: torch.Generator) -> None:
        """Compute with noise from now on."""
        for layer in self._noisy_layers:
            layer.draw_noise(generator)

    def clear_noise(self) -> None:
        for layer in self._noisy_layers:
            layer.clear_noise()

    @property
    def _noisy_layers(self) -> list[NoisyDense]:
        return [layer for layer in self.modules() if isinstance(layer, NoisyDense)]

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.q = self._noisy_head(num_features, self.num_actions, generator, dueling=self.dueling)

    def _noisy_head(
        self, num_features: int, num_outputs: int, generator: torch.Generator | None, *, dueling: bool = False
    ) -> NoisyQHead:
        return NoisyQHead(
            (num_features, *self._noisy_hiddens),
            num_outputs,
            dueling=dueling,
            sigma=self._noise_sigma,
            activation=self._head_activation,
            generator=generator,
        )


def _scaled(noise: Tensor) -> Tensor:
    """f(x) = sgn(x) sqrt(|x|), so that a product of two has the variance of one (section 3)."""
    return noise.sign() * noise.abs().sqrt()


class QuantileQFunction(QFunction):
    """A `QFunction` that knows the quantiles of each action's return, arXiv:1710.10044; its values are their means.

    Agents see the values alone, so they act as with any other Q-function.

    Args:
        hiddens: units of the dense layers; more units fit more and compute longer.
        num_quantiles: number of quantiles of each action; more resolve the distribution finer and compute longer.
    """

    @checked
    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (64, 64),
        *,
        action_space: int | spaces.Discrete,
        num_quantiles: PositiveInt = 51,
        **options: Any,
    ) -> None:
        self.num_quantiles = num_quantiles
        super().__init__(hiddens, action_space=action_space, **options)

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        features, state = self.features(obs, state, is_first)
        q = self._quantiles(features).mean(-1)
        return q if state is None else (q, state)

    def quantiles(self, obs: Obs) -> Tensor:
        """Compute the quantiles at (i + 0.5) / num_quantiles, [..., num_actions, num_quantiles] float32."""
        features, _ = self.features(obs)
        return self._quantiles(features)

    def _quantiles(self, features: Tensor) -> Tensor:
        output = self.q.forward(features)
        output = output.reshape(*output.shape[:-1], -1, self.num_quantiles)
        # Each quantile is combined as a value: `combine_dueling` wants the actions last.
        return combine_dueling(output.mT).mT if self.dueling else output

    @property
    def _num_outputs(self) -> int:
        return (self.num_actions + self.dueling) * self.num_quantiles

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.q = Dense(num_features, self._num_outputs, generator)


class NoisyQuantileQFunction(QuantileQFunction, NoisyQFunction):
    """A `QuantileQFunction` whose dense layers are noisy, for `NoisyQAgent` and `QuantileDQNLearner`.

    Args:
        options: see `QuantileQFunction` and `NoisyQFunction`.
    """

    def __init__(self, hiddens: Sequence[PositiveInt] = (64, 64), **options: Any) -> None:
        super().__init__(hiddens, **options)

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.q = self._noisy_head(num_features, self._num_outputs, generator)
