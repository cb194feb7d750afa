"""Recurrent cores: they go between a torso and a head, and carry a state from one step of an episode to the next."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from surreal.model.allocate import allocate


class LSTMCore(nn.Module):
    """An LSTM (Hochreiter and Schmidhuber 1997) over steps or sequences, its state cleared where episodes begin.

    The state of one environment is one tensor [2, size]: the output and the cell.

    Args:
        num_features: of its input.
        size: units, >= 1; more remember more and compute longer.
        generator: draws the initial values, U(-1/sqrt(size), 1/sqrt(size)) as torch's own; None uses the global one.
    """

    def __init__(self, num_features: int, size: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"lstm_size is {size}; it must be >= 1")
        self.num_features = size
        self.state_shape = (2, size)
        self.cell = allocate(nn.LSTMCell(num_features, size, device="meta"))
        bound = 1.0 / math.sqrt(size)
        for parameter in self.cell.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, features: Tensor, state: Tensor, is_first: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute one step, or all steps of sequences in order.

        Args:
            features: [B, num_features] or [T, B, num_features].
            state: [B, 2, size] before the first step.
            is_first: [B] or [T, B] bool: steps before which the state is cleared; None clears none.

        Returns:
            The outputs, [B, size] or [T, B, size], and the state after the last step, [B, 2, size].
        """
        if features.dim() == 2:
            return self._step(features, state, is_first)
        outputs = []
        for t in range(len(features)):
            output, state = self._step(features[t], state, None if is_first is None else is_first[t])
            outputs.append(output)
        return torch.stack(outputs), state

    def _step(self, features: Tensor, state: Tensor, is_first: Tensor | None) -> tuple[Tensor, Tensor]:
        if is_first is not None:
            state = state * ~is_first[:, None, None]
        output, cell = self.cell(features, (state[:, 0], state[:, 1]))
        return output, torch.stack((output, cell), dim=1)
