"""Actor-critics for learning off-policy: an actor, which alone agents compute, and the critics of its actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from torch import Tensor, nn

from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.base import LazyModel, make_generator
from surreal.model.layers.activations import ActivationName, read_activation
from surreal.model.layers.conv import ConvStage, read_convolutions
from surreal.model.layers.images import check_image_axes
from surreal.model.off_policy.action_range import ActionRange
from surreal.model.off_policy.actors import DeterministicActor
from surreal.model.off_policy.critics import ContinuousCritics, Critics
from surreal.model.torso import check_hiddens


class OffPolicyActorCritic(LazyModel):
    """Base of actor-critics whose two parts share nothing. A subclass says what they are for a space of actions.

    Attributes:
        actor: what agents compute, once the model has its shape.
        critic: what learners ask beside it.

    Args:
        hiddens: units of the dense layers (each >= 1); more units fit more and compute longer.
        action_space: whose actions the actor gives; one that the class has no actor for is refused at once.
        critics: how many networks value the actions, >= 1. Two, of which the smaller value counts, overestimate less.
        critic_hiddens: units of the critics' dense layers; None takes `hiddens`.
        convolutions: for images, before the dense layers: `nature`, `a3c`, `universe`, or a list; see
            `surreal.model.layers.conv`. Actor and critics have their own. None takes images as vectors.
        image_axes: of images of 3 axes: channels_first, channels_last, or auto, which tells from the shape.
        activation: after each dense layer: a name, or kaf, which learns its shape, with `{type: kaf, boundary, size,
            kernel, gamma}`; see `surreal.model.layers.activations`.
        layer_norm: normalise before each activation, in actor and critics (Ba et al. 2016, arXiv:1607.06450).
        obs_spec: kind of the observations, if known.
        seed: of the initial parameters; None draws them from torch's global generator.
    """

    actor: nn.Module
    critic: Critics

    def __init__(
        self,
        hiddens: Sequence[int] = (256, 256),
        *,
        action_space: gymnasium.Space[Any],
        critics: int = 2,
        critic_hiddens: Sequence[int] | None = None,
        convolutions: str | Sequence[ConvStage | Mapping[str, Any]] | None = None,
        image_axes: str = "auto",
        activation: ActivationName = "relu",
        layer_norm: bool = False,
        obs_spec: ObsSpec | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if critics < 1:
            raise ValueError(f"critics is {critics}; it must be >= 1")
        read_activation(activation)
        self._read_space(action_space)
        self.hiddens = check_hiddens(hiddens)
        self.critic_hiddens = self.hiddens if critic_hiddens is None else check_hiddens(critic_hiddens)
        self.num_critics = critics
        self._options = {
            "convolutions": None if convolutions is None else read_convolutions(convolutions),
            "image_axes": check_image_axes(image_axes),
            "activation": activation,
            "layer_norm": layer_norm,
        }
        self._seed = seed
        if obs_spec is not None:
            self.materialize(obs_spec)

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute what the actor says: actions, or a distribution over them."""
        if self.obs_spec is None:
            self._ensure_built(obs)
        return self.actor.forward(obs)

    def _build(self, obs_spec: ObsSpec) -> None:
        options = {**self._options, "generator": make_generator(self._seed)}
        self.actor = self._make_actor(obs_spec, {**options, "hiddens": self.hiddens})
        self.critic = self._make_critic(
            obs_spec, {**options, "hiddens": self.critic_hiddens, "count": self.num_critics}
        )

    @abstractmethod
    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        """Keep what actor and critics need to know of the actions.

        Raises:
            ValueError: they are not for such actions.
        """

    @abstractmethod
    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        """Make the actor, on the CPU; `options` are those of `ActorBody`."""

    @abstractmethod
    def _make_critic(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> Critics:
        """Make the critics, on the CPU; `options` are those of `Critics`."""


class DeterministicActorCritic(OffPolicyActorCritic):
    """An actor that gives one action, and critics, for DDPG and TD3 (arXiv:1509.02971, arXiv:1802.09477).

    Actions are a Box of one axis, float32, with finite bounds.

    Args:
        options: see `OffPolicyActorCritic`.
    """

    def _read_space(self, action_space: gymnasium.Space[Any]) -> None:
        self.bounds = ActionRange(action_space)

    def _make_actor(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> nn.Module:
        return DeterministicActor(obs_spec, self.bounds, **options)

    def _make_critic(self, obs_spec: ObsSpec, options: Mapping[str, Any]) -> Critics:
        return ContinuousCritics(obs_spec, self.bounds, **options)
