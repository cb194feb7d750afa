"""Intrinsic curiosity: reward for unpredicted observations, Pathak et al. 2017, arXiv:1705.05363.

It is computed where experience is learned from, by the newest models of dynamics: agents know nothing of it, and the
returns that a run reports are those of the environment alone. A learner that offers it adds `Surprise.reward` to its
rewards, and steps down `surprise_loss`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor

from surreal.base.pytorch import check_rank
from surreal.base.ranges import NonNegative, Positive, PositiveInt, Share, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import TrajectoryBatch
from surreal.model.activations import ActivationName
from surreal.model.base import make_generator
from surreal.model.conv import ConvStage
from surreal.model.curiosity import Dynamics


@checked
@dataclass(frozen=True)
class CuriositySettings:
    """Settings of a learner's curiosity and its networks.

    The paper's lambda, the weight of the policy's loss against the loss of these networks, is absent: the networks are
    separate, with a separate learning rate.
    """

    #: eta of the paper, reward for a unit of the forward model's error; raising it explores more, and gives the
    #: environment's reward less weight
    reward_scale: NonNegative = 0.01
    #: beta of the paper, weight of the forward model's loss against the inverse model's; raising it foresees better,
    #: and learns features more slowly
    forward_share: Share = 0.2
    learning_rate: Positive = 1e-3  #: learning rate of the networks; raising it makes known observations boring sooner
    hidden_sizes: Sequence[PositiveInt] = (64,)  #: units of the encoder's dense layers; the last gives the features
    #: convolutions of the encoder, for images, as in `ComposedModel`; the paper has `universe`
    convolutions: str | Sequence[ConvStage | Mapping[str, Any]] | None = None
    activation: ActivationName = "elu"  #: after each layer
    units: PositiveInt = 64  #: units of the hidden layer of the inverse and of the forward model

    def make(self, obs_spec: ObsSpec, action_space: gymnasium.Space[Any], *, seed: int | None = None) -> Dynamics:
        """Make the networks; without a `seed`, torch's global generator draws their initial parameters."""
        return Dynamics(
            obs_spec,
            action_space,
            hiddens=self.hidden_sizes,
            convolutions=self.convolutions,
            activation=self.activation,
            units=self.units,
            generator=make_generator(seed),
        )


class Surprise(NamedTuple):
    """Values of the steps of trajectories, [T, B] float32 each."""

    reward: Tensor  #: for what was not foreseen, without gradient; 0 in rows without a step
    loss: Tensor  #: of inverse and forward model; also of rows without a step, which are not learned from


def read_curiosity(icm: Mapping[str, Any] | None) -> CuriositySettings | None:
    """Read the option `icm` of a learner; raises `ValueError` for an unknown setting or a value out of range."""
    if icm is None:
        return None
    known = [field.name for field in fields(CuriositySettings)]
    unknown = sorted(icm.keys() - set(known))
    if unknown:
        raise ValueError(f"icm has no setting {', '.join(unknown)}; it has {', '.join(known)}")
    try:
        return CuriositySettings(**icm)
    except ValueError as error:
        raise ValueError(f"icm.{error}") from error


def surprise(dynamics: Dynamics, batch: TrajectoryBatch, settings: CuriositySettings) -> Surprise:
    """Compute reward and loss of a batch; `obs[t + 1]` is the result of step t, over ends of episodes too."""
    foreseen = dynamics(batch.obs, batch.action)
    error = forward_error(foreseen.predicted, foreseen.features)
    inverse = -foreseen.action.log_probability(batch.action)
    reward = settings.reward_scale * batch.mask * error.detach()
    return Surprise(reward, surprise_loss(inverse, error, settings.forward_share))


def forward_error(predicted: Tensor, features: Tensor) -> Tensor:
    """Half the squared distance of predicted and actual features: eq. 5 of the paper, and eq. 6 without eta.

    From [T, B, num_features] to [T, B] float32; the gradient flows through `predicted`.
    """
    check_rank(3, predicted=predicted, features=features)
    return 0.5 * (predicted - features).square().sum(-1)


def surprise_loss(inverse: Tensor, forward: Tensor, forward_share: float) -> Tensor:
    """(1 - beta) L_I + beta L_F, of eq. 7 of the paper, for each step, [T, B] float32.

    `inverse` is minus the log-probability of the action taken under the inverse model, `forward` a `forward_error`.
    """
    check_rank(2, inverse=inverse, forward=forward)
    return torch.lerp(inverse, forward, forward_share)
