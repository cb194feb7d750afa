"""`QFunction`: values of all discrete actions, from the flattened observation through dense layers."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from gymnasium import spaces
from torch import Tensor

from surreal.model.activations import get_activation
from surreal.model.base import LazyModel, make_generator
from surreal.model.inputs import flatten_obs
from surreal.model.mlp import MLP
from surreal.specs import ObsSpec
from surreal.types import Obs


class QFunction(LazyModel):
    """A dense network from an observation to Q values (Mnih et al. 2013, arXiv:1312.5602).

    It needs no observation shape: without `obs_spec` the parameters are created at the first batch, or from the first
    parameters that are loaded.

    Args:
        hiddens: units of the dense layers (each >= 1); more units fit more and compute longer.
        action_space: number of actions (>= 1), or a Discrete space from 0.
        activation: after each dense layer; see `surreal.model.activations`.
        dueling: split the output into the state's value and the actions' advantages, Q = V + A - mean(A)
            (Wang et al. 2016 eq. 9, arXiv:1511.06581).
        obs_spec: kind of the observations, if known.
        seed: of the initial parameters; None draws them from torch's global generator.
    """

    def __init__(
        self,
        hiddens: Sequence[int] = (64, 64),
        *,
        action_space: int | spaces.Discrete,
        activation: str = "relu",
        dueling: bool = False,
        obs_spec: ObsSpec | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.hiddens = tuple(hiddens)
        self.num_actions = count_actions(action_space)
        self.dueling = dueling
        self._activation = activation
        self._seed = seed
        if any(units < 1 for units in self.hiddens):
            raise ValueError(f"hiddens is {list(self.hiddens)}; every layer needs >= 1 units")
        get_activation(activation)
        if obs_spec is not None:
            self.materialize(obs_spec)

    def forward(self, obs: Obs) -> Tensor:
        """Compute Q values.

        Args:
            obs: [B, *obs_shape] tensor, or nested dicts and tuples of them.

        Returns:
            [B, num_actions] float32
        """
        features = flatten_obs(obs)
        self._ensure_built(features.shape[1])
        output: Tensor = self.network(features)
        return combine_dueling(output) if self.dueling else output

    @property
    def _input_weight(self) -> str:
        return "network.layers.0.weight"

    def _build(self, num_features: int) -> None:
        # With dueling, output 0 is the state's value.
        sizes = (num_features, *self.hiddens, self.num_actions + self.dueling)
        self.network = MLP(sizes, self._activation, generator=make_generator(self._seed))

    def extra_repr(self) -> str:
        """Describe the constructor's arguments, for `repr`."""
        return f"hiddens={list(self.hiddens)}, action_space={self.num_actions}, dueling={self.dueling}"


def combine_dueling(output: Tensor) -> Tensor:
    """Compute Q [B, n] from the state's value and the actions' advantages, [B, 1 + n]."""
    value, advantage = output[:, :1], output[:, 1:]
    return value + advantage - advantage.mean(dim=1, keepdim=True)


def count_actions(action_space: int | spaces.Discrete) -> int:
    """Read the number of actions.

    Raises:
        ValueError: the space does not start at 0, or there is no action.
    """
    if isinstance(action_space, spaces.Discrete):
        if action_space.start != 0:
            raise ValueError(f"action space {action_space} starts at {action_space.start}; it must start at 0")
        return int(action_space.n)
    try:
        count = operator.index(action_space)
    except TypeError as error:
        raise ValueError(f"action_space is {action_space!r}; use a number of actions or a Discrete space") from error
    if count < 1:
        raise ValueError(f"action_space is {count}; it must be >= 1")
    return count
