"""Recurrent cores: they go between a torso and a head, and carry a state from one step of an episode to the next."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from surreal.base.pytorch import is_recording
from surreal.base.ranges import PositiveInt, checked
from surreal.model.mlp import allocate

#: Steps that have to lie between two beginnings of episodes, on average, for a run of them to be worth a call.
_LEAST_RUN = 3


class Core(nn.Module, ABC):
    """Over steps or sequences; its state is cleared where episodes begin.

    Attributes:
        num_features: number of features of its output.
        state_shape: shape of the state of one environment.

    Args:
        num_features: number of features of its output.
        state_shape: shape of the state of one environment.
    """

    def __init__(self, num_features: int, state_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.num_features = num_features
        self.state_shape = state_shape

    @abstractmethod
    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the output [B, num_features] and the next state from [B, inputs] and [B, *state_shape]."""

    def forward(self, features: Tensor, state: Tensor, is_first: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute one step, or all steps of sequences in order.

        Args:
            features: [B, inputs] or [T, B, inputs].
            state: [B, *state_shape] before the first step.
            is_first: [B] or [T, B] bool: steps before which the state is cleared; None clears none.

        Returns:
            The outputs, [B, num_features] or [T, B, num_features], and the state after the last step.
        """
        if features.dim() == 2:
            return self.step(features, self._clear(state, is_first))
        outputs = []
        for t in range(len(features)):
            output, state = self.step(features[t], self._clear(state, None if is_first is None else is_first[t]))
            outputs.append(output)
        return torch.stack(outputs), state

    def _clear(self, state: Tensor, is_first: Tensor | None) -> Tensor:
        return state if is_first is None else state * ~is_first.view(-1, *(1,) * len(self.state_shape))


class LSTMCore(Core):
    """An LSTM (Hochreiter and Schmidhuber 1997). The state of one environment is [2, size]: the output and the cell.

    Args:
        size: units; more remember more and compute longer.
        generator: draws the initial values, see `make_cell`; None uses torch's global one.
    """

    @checked
    def __init__(self, num_features: int, size: PositiveInt, generator: torch.Generator | None = None) -> None:
        super().__init__(size, (2, size))
        self.cell = make_cell(num_features, size, generator)

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        output, cell = self.cell(features, (state[:, 0], state[:, 1]))
        return output, torch.stack((output, cell), dim=1)

    def forward(self, features: Tensor, state: Tensor, is_first: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute as any core does, but all steps between two episode starts at once."""
        if features.dim() == 2 or is_recording():  # a graph cannot depend on where episodes begin
            return super().forward(features, state, is_first)
        begins = [] if is_first is None else (is_first[1:].any(1).nonzero()[:, 0] + 1).tolist()
        if len(begins) * _LEAST_RUN > len(features):
            return super().forward(features, state, is_first)
        outputs = []
        for start, end in itertools.pairwise([0, *begins, len(features)]):
            output, state = self._run(
                features[start:end], self._clear(state, None if is_first is None else is_first[start])
            )
            outputs.append(output)
        return torch.cat(outputs), state

    def _run(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the steps [T, B, inputs] of episodes that continue; several times as fast as step by step."""
        cell = self.cell
        weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
        before = tuple(state.transpose(0, 1).unsqueeze(1).contiguous())
        # One layer with biases, no dropout, in one direction, time first.
        outputs, output, memory = torch.lstm(features, before, weights, True, 1, 0.0, self.training, False, False)
        return outputs, torch.stack((output[0], memory[0]), dim=1)


class DilatedLSTMCore(Core):
    """An LSTM with several states that take turns (Vezhnevets et al. 2017 section 3.2, arXiv:1703.01161).

    A step updates one of them, so each is updated every `num_cores` steps and remembers that much longer. The output
    is the sum of what all of them gave last. The state of one environment is [num_cores, 2, size]; the core whose turn
    is next stands first.

    Args:
        size: units of each core.
        num_cores: number of states; raising it remembers for longer, and sees less of nearby steps.
        generator: draws the initial values, see `make_cell`; None uses torch's global one.
    """

    @checked
    def __init__(
        self, num_features: int, size: PositiveInt, num_cores: PositiveInt, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(size, (num_cores, 2, size))
        self.cell = make_cell(num_features, size, generator)

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        output, cell = self.cell(features, (state[:, 0, 0], state[:, 0, 1]))
        updated = torch.stack((output, cell), dim=1).unsqueeze(1)
        state = torch.cat((state[:, 1:], updated), dim=1)
        return state[:, :, 0].sum(1), state


def make_cell(num_features: int, size: int, generator: torch.Generator | None) -> nn.LSTMCell:
    """Make the cell of an LSTM; initial values from U(-1/sqrt(size), 1/sqrt(size)), as torch's own."""
    cell = allocate(nn.LSTMCell(num_features, size, device="meta"))
    bound = 1.0 / math.sqrt(size)
    for parameter in cell.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return cell
