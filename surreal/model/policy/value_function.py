"""`ValueFunction`: a network of its own for the value of the state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from surreal.base.types import Obs
from surreal.model.composed import ComposedModel
from surreal.model.heads import ValueHead


class ValueFunction(ComposedModel):
    """A network from an observation to one value; arguments as in `ComposedModel`."""

    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute [...] float32; with `use_lstm`, this and the state afterwards."""
        features, state = self.features(obs, state, is_first)
        value = self.value.forward(features)
        return value if state is None else (value, state)

    def _build_heads(self, num_features: int, generator: torch.Generator | None) -> None:
        self.value = ValueHead(num_features, generator)
