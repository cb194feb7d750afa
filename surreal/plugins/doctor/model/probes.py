"""Probes that watch a model while it is used: whether its outputs are finite, and depend on the observations."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from surreal.base.pytorch import tensors_of

#: Rows whose outputs are compared, and the least number of different observations for a finding.
_MOST_ROWS, _LEAST_ROWS = 64, 8


class FiniteProbe:
    """Names the first part of a model, which has made its layers, that computes NaN or infinity.

    Minus infinity is ignored: it stands for illegal actions.

    Attributes:
        found: description of the part, "" if all outputs are finite.
    """

    def __init__(self, model: nn.Module) -> None:
        self.found = ""
        for name, part in model.named_modules():
            part.register_forward_hook(partial(self._look, f"{name} ({type(part).__name__})" if name else "the model"))

    def _look(self, name: str, part: nn.Module, inputs: Any, output: Any) -> None:
        if self.found:
            return
        for tensor in tensors_of(output):
            if tensor.is_floating_point() and bool((tensor.isnan() | (tensor == torch.inf)).any()):
                is_first = all(not _is_broken(value) for value in tensors_of(inputs))
                self.found = f"{name} computes {'NaN or infinity' if is_first else 'with NaN or infinity'}"
                return


class OutputProbe:
    """Compares the outputs of a model for different observations, [N, ...]."""

    def __init__(self, model: nn.Module) -> None:
        self._handle = model.register_forward_hook(self._look)
        self._inputs: set[bytes] = set()
        self._outputs: set[bytes] = set()

    @property
    def ignores_obs(self) -> bool:
        """Whether enough observations differed, and no output did."""
        return len(self._inputs) >= _LEAST_ROWS and len(self._outputs) == 1

    def close(self) -> None:
        """Stop watching."""
        self._handle.remove()

    def _look(self, model: nn.Module, inputs: Any, output: Any) -> None:
        given, made = tensors_of(inputs[:1]), tensors_of(output)[:1]
        if not given or not made or not made[0].ndim or len(self._inputs) >= _MOST_ROWS:
            return
        if any(not tensor.ndim or len(tensor) != len(made[0]) for tensor in given):
            return
        for row in range(len(made[0])):
            self._inputs.add(b"".join(_bytes_of(tensor[row]) for tensor in given))
            self._outputs.add(_bytes_of(made[0][row]))


def _is_broken(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not bool(tensor.isfinite().all())


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()
