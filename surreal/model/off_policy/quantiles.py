"""`QuantileQFunction`: the distribution of returns of each action, by its quantiles (Dabney et al. 2018).

`NoisyQuantileQFunction` is the same with noisy layers, as Rainbow needs it (Hessel et al. 2018, arXiv:1710.02298).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.types import Obs
from surreal.model.heads import combine_dueling
from surreal.model.layers.mlp import Dense
from surreal.model.off_policy.noisy import NoisyQFunction
from surreal.model.off_policy.q_function import QFunction


class QuantileQFunction(QFunction):
    """A `QFunction` that knows the quantiles of each action's return, arXiv:1710.10044; its values are their means.

    Agents see the values alone, so they act as with any other Q-function.

    Args:
        hiddens: units of the dense layers (each >= 1); more units fit more and compute longer.
        num_quantiles: of each action, >= 1; more resolve the distribution finer and compute longer.
        options: see `QFunction`.
    """

    def __init__(
        self,
        hiddens: Sequence[int] = (64, 64),
        *,
        action_space: int | spaces.Discrete,
        num_quantiles: int = 51,
        **options: Any,
    ) -> None:
        if num_quantiles < 1:
            raise ValueError(f"num_quantiles is {num_quantiles}; it must be >= 1")
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
        # Of each quantile as of a value: `combine_dueling` wants the actions last.
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

    def __init__(self, hiddens: Sequence[int] = (64, 64), **options: Any) -> None:
        super().__init__(hiddens, **options)

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.q = self._noisy_head(num_features, self._num_outputs, generator)
