# Copied from surreal.model.off_policy.q_function of Surreal 0.1.0; yours to edit.
"""`QFunction`: values of all discrete actions; `ConvQFunction`: the same from images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal.model.composed import ComposedModel
from surreal.model.heads import QHead, count_actions
from surreal.model.layers.conv import ConvStage
from surreal.types import Obs


class QFunction(ComposedModel):
    """A network from an observation to Q values (Mnih et al. 2013, arXiv:1312.5602).

    Args:
        hiddens: units of the dense layers (each >= 1); more units fit more and compute longer.
        action_space: number of actions (>= 1), or a Discrete space from 0.
        dueling: split the output into the state's value and the actions' advantages, Q = V + A - mean(A)
            (Wang et al. 2016 eq. 9, arXiv:1511.06581).
        options: see `ComposedModel`.
    """

    def __init__(
        self,
        hiddens: Sequence[int] = (64, 64),
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
        """Describe the constructor's arguments, for `repr`."""
        return f"{super().extra_repr()}, action_space={self.num_actions}, dueling={self.dueling}"


class ConvQFunction(QFunction):
    """Convolutions and dense layers from an image, or a stack of frames, to Q values (Mnih et al. 2015).

    Images are [channels, height, width], as frame stacks are; a single gray frame [height, width] is one channel.
    uint8 is scaled by 1/255.

    Args:
        hiddens: units of the dense layers (each >= 1) between the convolutions and the values; more fit more.
        convolutions: `nature`, `a3c`, `universe`, `impala`, or a list; see `ComposedModel`.
        options: see `QFunction`.
    """

    def __init__(
        self,
        hiddens: Sequence[int] = (512,),
        *,
        convolutions: str | Sequence[ConvStage | Mapping[str, Any]] = "nature",
        **options: Any,
    ) -> None:
        super().__init__(hiddens, convolutions=convolutions, **options)
