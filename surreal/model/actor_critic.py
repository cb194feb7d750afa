"""`ActorCritic`: a policy and the value of the state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import gymnasium
import torch
from torch import Tensor, nn

from surreal.base.ranges import PositiveInt, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import ActivationName
from surreal.model.base import ComposedModel, make_generator
from surreal.model.distributions import Distribution
from surreal.model.filters import ObsFilter, ReturnFilter
from surreal.model.heads import LogSigma, SigmaSettings, ValueHead, make_policy_head

HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


def initialise_orthogonally(module: nn.Module, gain: float, generator: torch.Generator | None) -> None:
    """Draw all matrices and filters of a module again, with this gain, and set biases, but nothing else, to 0."""
    for layer in module.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if parameter.ndim > 1:
                nn.init.orthogonal_(parameter, gain, generator=generator)
            elif name.startswith("bias"):
                nn.init.zeros_(parameter)


class ValueFunction(ComposedModel):
    """A network from an observation to one value; arguments as in `ComposedModel`."""

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute [...] float32; with `use_lstm`, this and the state afterwards."""
        features, state = self.features(obs, state, is_first)
        value = self.value.forward(features)
        return value if state is None else (value, state)

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.value = ValueHead(num_features, generator)


class PolicyValue(NamedTuple):
    """Output of an actor-critic for a batch of any leading axes."""

    policy: Distribution
    value: Tensor  #: [...] float32


class ActorCritic(ComposedModel):
    """A policy and a value that share torso and core (Mnih et al. 2016, arXiv:1602.01783), or have one each.

    Args:
        hiddens: units of the dense layers; more units fit more and compute longer.
        action_space: Discrete, MultiDiscrete or MultiBinary, from 0; or Box of one axis, float32, whose normal
            distribution has no bounds: environments get clipped samples.
        activation: activation after each dense layer; see `surreal.model.activations`.
        value_hiddens: units of the dense layers of a separate network for the value, with the same kind of convolutions
            and LSTM as the policy's; the two losses then do not affect each other. None: the value shares the policy's
            network.
        orthogonal: whether initial values are orthogonal, and small for the policy's output, instead of torch's usual
            ones.
        sigma: whether the standard deviation of continuous actions is "free" (parameters, the same in all states), or
            depends on the "state".
        log_sigma: initial logarithm of the standard deviation; raising it explores more.
        normalize_obs: whether to shift and scale real observations to mean 0 and deviation 1, by running statistics
            over all steps that the learner has used.
        normalize_rewards: whether the learner scales rewards by the running deviation of discounted returns.
    """

    @checked
    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (64, 64),
        *,
        action_space: gymnasium.Space[Any],
        activation: ActivationName = "tanh",
        value_hiddens: Sequence[PositiveInt] | None = None,
        orthogonal: bool = False,
        sigma: Literal["free", "state"] = "free",
        log_sigma: LogSigma = 0.0,
        normalize_obs: bool = False,
        normalize_rewards: bool = False,
        obs_spec: ObsSpec | None = None,
        **options: Any,
    ) -> None:
        super().__init__(hiddens, activation=activation, **options)
        self.action_space = action_space
        self._sigma = SigmaSettings(sigma, log_sigma)
        make_policy_head(1, action_space)  # a space without a policy is refused now, not at the first batch
        self.value_hiddens = None if value_hiddens is None else tuple(value_hiddens)
        self._value_options = {"activation": activation, **options}
        self._is_orthogonal = orthogonal
        self._normalizes_obs = normalize_obs
        self.value_network: ValueFunction | None = None
        self.return_filter = ReturnFilter() if normalize_rewards else None
        if self.state_shape is not None and self.value_hiddens is not None:
            *outer, size = self.state_shape
            self.state_shape = (*outer, 2 * size)  # the policy's state, then the value's
        if obs_spec is not None:
            self.materialize(obs_spec)

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute a `PolicyValue`; with `use_lstm`, this and the state afterwards."""
        if self.obs_spec is None:
            self._ensure_built(obs)
        if self.obs_filter is not None:
            obs = self.obs_filter.forward(obs)
        if self.value_network is not None:
            return self._forward_apart(self.value_network, obs, state, is_first)
        features, state = self.features(obs, state, is_first)
        output = PolicyValue(self.policy.forward(features), self.value.forward(features))
        return output if state is None else (output, state)

    def _forward_apart(
        self, value_network: ValueFunction, obs: Obs, state: Tensor | None, is_first: Tensor | None
    ) -> Any:
        if self.state_shape is None:
            features, _ = self.features(obs)
            return PolicyValue(self.policy.forward(features), value_network.forward(obs))
        states = (None, None) if state is None else state.chunk(2, dim=-1)
        features, ours = self.features(obs, states[0], is_first)
        value, theirs = value_network.forward(obs, states[1], is_first)
        after = [part for part in (ours, theirs) if part is not None]
        return PolicyValue(self.policy.forward(features), value), torch.cat(after, dim=-1)

    def _build(self, obs_spec: ObsSpec) -> None:
        super()._build(obs_spec)
        if self._normalizes_obs:
            self.obs_filter = ObsFilter(obs_spec)
        if self.value_hiddens is not None:
            self.value_network = ValueFunction(self.value_hiddens, obs_spec=obs_spec, **self._value_options)
        if self._is_orthogonal:
            generator = make_generator(self._seed)
            initialise_orthogonally(self, HIDDEN_GAIN, generator)
            initialise_orthogonally(self.policy, POLICY_GAIN, generator)
            value = self.value if self.value_network is None else self.value_network.value
            initialise_orthogonally(value, VALUE_GAIN, generator)

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.policy = make_policy_head(num_features, self.action_space, generator, self._sigma)
        if self.value_hiddens is None:
            self.value = ValueHead(num_features, generator)
