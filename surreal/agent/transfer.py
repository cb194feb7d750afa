"""`Transfer`: the observations of a turn to a device in one copy, and its results back in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.pytorch import move_tensor, to_tensors
from surreal.base.types import Obs

#: Each leaf begins at a multiple of this, so that it can be viewed in any dtype, bytes.
_ALIGNMENT = 16


class Transfer:
    """Moves observations to an agent's device, and actions back; one thread uses it.

    The leaves of an observation lie one after the other in a buffer, which is used again in each turn. For CUDA it is
    page-locked, so the copy to the device does not wait.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._is_cuda = device.type == "cuda"
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._copied: Any = None  # a CUDA event: the buffer may be written again

    def send(self, obs: Obs) -> Any:
        """Return an observation as tensors on the device; arrays of objects stay, and other devices' tensors move."""
        parts: list[tuple[Tensor, int]] = []  # with the places in the buffer
        size = 0

        def place(leaf: Any) -> Any:
            nonlocal size
            if not isinstance(leaf, Tensor):
                return leaf
            if leaf.device.type != "cpu":
                return move_tensor(leaf, self.device)
            if self.device.type == "mps" and leaf.dtype == torch.float64:
                leaf = leaf.to(torch.float32)
            parts.append((leaf, size))
            size += -(-leaf.nbytes // _ALIGNMENT) * _ALIGNMENT
            return len(parts) - 1

        places = tree.map_leaves(place, to_tensors(obs))
        staged = self._stage(size)
        for leaf, begin in parts:
            _view(staged, begin, leaf).copy_(leaf)
        moved = self._upload(staged)
        return tree.map_leaves(
            lambda found: _view(moved, parts[found][1], parts[found][0]) if isinstance(found, int) else found, places
        )

    def fetch(self, actions: Any, extras: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return actions and columns, with new arrays in place of tensors on the device."""
        found = [actions, *extras.values()]
        kind = self.device.type
        there = [i for i, column in enumerate(found) if isinstance(column, Tensor) and column.device.type == kind]
        there.sort(key=lambda number: -found[number].element_size())  # so each begins where its dtype may
        if there:
            given = [found[number].detach() for number in there]
            data = self._download(torch.cat([column.reshape(-1).view(torch.uint8) for column in given]))
            begin = 0
            for number, column in zip(there, given, strict=True):
                found[number] = _view(data, begin, column).numpy()
                begin += column.nbytes
        return found[0], dict(zip(extras, found[1:], strict=True))

    def _stage(self, size: int) -> Tensor:
        """Return memory for a turn's observations, once the last copy from there has ended."""
        if self._copied is not None:
            self._copied.synchronize()
        if len(self._buffer) < size:
            self._buffer = torch.empty(size, dtype=torch.uint8, pin_memory=self._is_cuda)
        return self._buffer[:size]

    def _upload(self, staged: Tensor) -> Tensor:
        moved = staged.to(self.device, non_blocking=self._is_cuda, copy=True)
        if self._is_cuda:
            self._copied = self._copied or torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(self.device))
        return moved

    def _download(self, data: Tensor) -> Tensor:
        return data.cpu()


def _view(data: Tensor, begin: int, like: Tensor) -> Tensor:
    """View bytes from `begin` on as a tensor of the dtype and shape of another one."""
    return data[begin : begin + like.nbytes].view(like.dtype).view(like.shape)
