"""Actor-critics for off-policy learners: deterministic, and with entropy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import gymnasium
import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal.base.ranges import NonNegativeInt, Positive, PositiveInt, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.activations import ActivationName, read_activation
from surreal.model.base import LazyModel, make_generator
from surreal.model.conv import ConvStage, read_convolutions
from surreal.model.filters import ObsFilter
from surreal.model.heads import count_actions
from surreal.model.norms import NormName, read_norm
from surreal.model.off_policy.action_range import ActionRange, Drawn
from surreal.model.off_policy.actors import (
    ActorBody,
    CategoricalActor,
    DeterministicActor,
    SquashedNormalActor,
    StateDependentActor,
)
from surreal.model.off_policy.blocks import BlockKind, check_blocks
from surreal.model.off_policy.critic_outputs import CriticOutputName, read_critic_output
from surreal.model.off_policy.critics import ContinuousCritics, Critics, DiscreteCritics
from surreal.model.torso import ImageAxes


class OffPolicyActorCritic(LazyModel):
    """Base of actor-critics whose two parts share nothing. A subclass builds them for an action space.

    Args:
        hiddens: units of the dense layers; more units fit more and compute longer.
        action_space: space of the actor's actions; a space that the class has no actor for is refused at once.
        critics: number of networks that value actions. Two, of which the smaller value counts, overestimate less.
        critic_hiddens: units of the critics' dense layers; None takes `hiddens`.
        critic_output: what critics learn of returns: scalar, their mean; quantile, with `{type: quantile, quantiles,
            dropped}`; or categorical, with `{type: categorical, bins}`; see `surreal.model.off_policy.critic_outputs`.
        convolutions: for images, before the dense layers: `nature`, `a3c`, `universe`, or a list; see
            `surreal.model.conv`. Actor and critics have their own. None takes images as vectors.
        image_axes: image axes of images of 3 axes: channels_first, channels_last, or auto, which tells from the shape.
        activation: after each dense layer: a name, or kaf, which learns its shape, with `{type: kaf, boundary, size,
            kernel, gamma}`; see `surreal.model.activations`.
        norm: normalizes before each activation, in actor and critics: layer, rms, or batch, with `{type: batch,
            momentum, warm_up, r_limit, d_limit}` for batch renormalization; see `surreal.model.norms`.
        layer_norm: the same as `norm: layer`.
        blocks: residual blocks in place of plain layers, one for each of `hiddens`, which are all equal: simba, or
            flashsac; see `surreal.model.off_policy.blocks`. A block is four times as wide inside.
        normalize_obs: whether to shift and scale real observations to mean 0 and deviation 1, by running statistics of
            the batches that the learner has used.
        unit_weights: whether the weights of each hidden unit have length 1 after each step, without bias (XQC, with
            `norm: batch`).
        obs_spec: kind of the observations, if known.
        seed: seed of the initial parameters; None draws them from torch's global generator.
    """

    actor: nn.Module  #: what agents compute, once the model has its shape; reads normalized observations
    critic: Critics  #: part that only learners use; reads normalized observations

    @checked
    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (256, 256),
        *,
        action_space: gymnasium.Space[Any],
        critics: PositiveInt = 2,
        critic_hiddens: Sequence[PositiveInt] | None = None,
        critic_output: CriticOutputName = "scalar",
        convolutions: str | Sequence[ConvStage | Mapping[str, Any]] | None = None,
        image_axes: ImageAxes = "auto",
        activation: ActivationName = "relu",
        norm: NormName | None = None,
        layer_norm: bool = False,
        blocks: BlockKind | None = None,
        unit_weights: bool = False,
        normalize_obs: bool = False,
        obs_spec: ObsSpec | None = None,
        seed: NonNegativeInt | None = None,
    ) -> None:
        super().__init__()
        read_activation(activation)
        if layer_norm and norm is not None:
            raise ValueError(f"norm is {norm!r} and layer_norm is true; use norm alone")
        read_critic_output(critic_output)
        self.critic_output = critic_output
        self._read_space(action_space)
        self.hiddens = tuple(hiddens)
        self.critic_hiddens = self.hiddens if critic_hiddens is None else tuple(critic_hiddens)
        self.num_critics = critics
        kind = read_norm("layer" if layer_norm else norm)
        if unit_weights and (kind is None or blocks is not None):
            raise ValueError("unit_weights is true; it needs norm, and plain layers (blocks: null)")
        for sizes in (self.hiddens, self.critic_hiddens):
            check_blocks(blocks, sizes, read_activation(activation), kind)
        self._options = {
            "convolutions": None if convolutions is None else read_convolutions(convolutions),
            "image_axes": image_axes,
            "activation": activation,
            "norm": kind,
            "blocks": blocks,
            "unit_weights": unit_weights,
        }
        self._normalizes_obs = normalize_obs
        self._seed = seed
        if obs_spec is not None:
            self.materialize(obs_spec)

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute the actor's output: actions, or a distribution over them."""
        if self.obs_spec is None:
            self._ensure_built(obs)
        return self.actor.forward(obs if self.obs_filter is None else self.obs_filter.forward(obs))

    def _build(self, obs_spec: ObsSpec) -> None:
        if self._normalizes_obs:
            self.obs_filter = ObsFilter(obs_spec)
        options = {**self._options, "generator": make_generator(self._seed)}
        self.actor = self._make_actor(obs_spec, {**options, "hiddens": self.hiddens})
        output = read_critic_output(self.critic_output)
        own = {"hiddens": self.critic_hiddens, "count": self.num_critics, "output": output}
        self.critic = self._make_critic(obs_spec, {**options, **own})

    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        """Store what actor and critics need to know of actions; raises `ValueError` if these are not for them."""
        self.bounds = ActionRange(action_space)

    @abstractmethod
    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        """Make the actor, on the CPU; `options` are those of `ActorBody`."""

    def _make_critic(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> Critics:
        """Make the critics, on the CPU; `options` are those of `Critics`."""
        return ContinuousCritics(obs_spec, self.bounds, **options)


class DeterministicActorCritic(OffPolicyActorCritic):
    """An actor that gives one action, and critics, for DDPG and TD3 (arXiv:1509.02971, arXiv:1802.09477).

    Actions are a Box of one axis, float32, with finite bounds.
    """

    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        return DeterministicActor(obs_spec, self.bounds, **options)


class ImplicitActorCritic(DeterministicActorCritic):
    """A `DeterministicActorCritic` that also has a value of the state, for IQL (arXiv:2110.06169)."""

    value: ActorBody  #: from normalized observations [B, ...] to [B, 1] float32; only learners use it

    def _build(self, obs_spec: ObsSpec) -> None:
        super()._build(obs_spec)
        options: dict[str, Any] = {**self._options, "generator": make_generator(self._seed)}
        self.value = ActorBody(obs_spec, 1, hiddens=self.critic_hiddens, **options)

    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        super()._read_space(action_space)
        if self.critic_output != "scalar":
            raise ValueError(f"critic_output is {self.critic_output!r}; IQL learns values, so use scalar")


class Expectation(NamedTuple):
    """Expectations over a policy's actions."""

    outputs: Tensor  #: [critics, B, output.size] float32; one critic, the smallest, for discrete actions
    log_probability: Tensor  #: [B] float32


class SoftModel(OffPolicyActorCritic):
    """Base of models for SAC. Expectations over actions are sampled (continuous) or summed (discrete)."""

    target_entropy: float  #: target entropy of the policy that papers aim at, in nats

    @abstractmethod
    def expect(
        self, critic: Critics, obs: Obs, generator: torch.Generator | None, legal: Tensor | None = None
    ) -> Expectation:
        """Value the policy's current actions; gradients flow through outputs and log-probability.

        Args:
            critic: made by this model, or a copy of it.
            obs: [B, *obs_shape] tensor, or nested dicts and tuples of them.
            generator: draws actions, where they are drawn.
            legal: [B, n] bool, discrete actions that may be chosen; a row without any has them all. None: all.
        """


class SoftActorCritic(SoftModel):
    """A squashed normal policy and critics, for continuous actions (Haarnoja et al. 2018, arXiv:1812.05905).

    Actions are a Box of one axis, float32, with finite bounds. What a policy does is one drawn action, and its
    log-probability is that of the action scaled to [-1, 1], so that the units of the environment do not matter.

    Args:
        hiddens: units of the dense layers; more units fit more and compute longer.
        state_dependent_sigma: initial standard deviation of the entries of the matrix that turns the features of the
            actor's last hidden layer into noise (gSDE, arXiv:2005.05719); raising it explores more. None: noise is
            independent of the features, and the network gives its standard deviation.
        options: those of `OffPolicyActorCritic`.
    """

    @checked
    def __init__(
        self,
        hiddens: Sequence[PositiveInt] = (256, 256),
        *,
        state_dependent_sigma: Positive | None = None,
        **options: Any,
    ) -> None:
        self._sigma = state_dependent_sigma
        super().__init__(hiddens, **options)

    def expect(
        self, critic: Critics, obs: Obs, generator: torch.Generator | None, legal: Tensor | None = None
    ) -> Expectation:
        action, log_probability = self.draw(obs, generator)
        return Expectation(critic.outputs(obs, action), log_probability)

    def draw(self, obs: Obs, generator: torch.Generator | None) -> Drawn:
        """Draw an action of the policy for each row; its log-probability is that of the action scaled to [-1, 1]."""
        action, log_probability = self.actor(obs).draw(generator)
        return Drawn(action, log_probability + self._log_scale)

    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        super()._read_space(action_space)
        self.target_entropy = -float(self.bounds.num_components)
        self._log_scale = float(self.bounds.log_half_range.sum())

    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        if self._sigma is not None:
            return StateDependentActor(obs_spec, self.bounds, log_sigma=math.log(self._sigma), **options)
        return SquashedNormalActor(obs_spec, self.bounds, **options)


class DiscreteSoftActorCritic(SoftModel):
    """A policy over discrete actions and critics (Christodoulou 2019, arXiv:1910.07207).

    What a policy does is summed over all actions, so nothing is drawn.
    """

    def expect(
        self, critic: Critics, obs: Obs, generator: torch.Generator | None, legal: Tensor | None = None
    ) -> Expectation:
        policy = self.actor(obs)
        if legal is not None:
            policy = policy.masked(legal | ~legal.any(1, keepdim=True))
        probability = policy.logits.exp()
        value = (probability * cast(DiscreteCritics, critic).all_actions(obs).amin(0)).sum(1)
        return Expectation(value[None, :, None], -policy.entropy())

    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        if not isinstance(action_space, spaces.Discrete):
            raise ValueError(f"actions are {action_space}; use Discrete, or SoftActorCritic for a Box")
        if self.critic_output != "scalar":
            raise ValueError(f"critic_output is {self.critic_output!r}; critics of discrete actions have scalar")
        self.num_actions = count_actions(action_space)
        self.target_entropy = 0.98 * math.log(self.num_actions)

    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        return CategoricalActor(obs_spec, self.num_actions, **options)

    def _make_critic(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> Critics:
        return DiscreteCritics(obs_spec, self.num_actions, **options)
