"""`ActionMapping`: from an agent's actions to those that the environment takes, as `surreal.envs.actions` does it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from surreal.base.errors import ExportError

_DTYPES: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(getattr(np, name)): getattr(torch, name)
    for name in ("float32", "float64", "int8", "int16", "int32", "int64", "uint8")
}


class ActionMapping(nn.Module):
    """Cuts a Box to its bounds, counts discrete actions from where the space does, and unfolds nested spaces.

    Args:
        space: action space of the environment: Discrete, MultiDiscrete, MultiBinary, Box, or Dict and Tuple of them.

    Raises:
        ExportError: a nested one holds choices beside numbers.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.leaves = named_spaces(space, "action")
        self._is_nested = isinstance(space, spaces.Dict | spaces.Tuple)
        if len({isinstance(leaf, spaces.Box) for leaf in self.leaves.values()}) > 1:
            raise ExportError(
                f"actions are {space}, in part choices and in part numbers; such a policy is not exported"
            )
        for number, leaf in enumerate(self.leaves.values()):
            if isinstance(leaf, spaces.Box):
                self.register_buffer(f"low_{number}", torch.from_numpy(np.array(leaf.low)))
                self.register_buffer(f"high_{number}", torch.from_numpy(np.array(leaf.high)))
            elif isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
                self.register_buffer(f"start_{number}", torch.from_numpy(np.array(leaf.start, np.int64)))

    def forward(self, actions: Tensor) -> dict[str, Tensor]:
        """Compute the environment's actions by name, [N, *shape] each, from an agent's."""
        found, begin = {}, 0
        for number, (name, leaf) in enumerate(self.leaves.items()):
            values = actions
            if self._is_nested:
                width = int(np.prod(leaf.shape or ()))
                values = actions[:, begin : begin + width]
                begin += width
            found[name] = self._decode(number, leaf, values)
        return found

    def _decode(self, number: int, leaf: Any, values: Tensor) -> Tensor:
        dtype = _DTYPES[np.dtype(leaf.dtype)]
        if isinstance(leaf, spaces.Box):
            low, high = self.get_buffer(f"low_{number}"), self.get_buffer(f"high_{number}")
            return values.reshape(-1, *leaf.shape).to(dtype).clamp(low, high)
        if isinstance(leaf, spaces.MultiBinary):
            return (values.reshape(-1, *leaf.shape) > 0.5).to(dtype)
        return (values.reshape(-1, *leaf.shape) + self.get_buffer(f"start_{number}")).to(dtype)


def named_spaces(space: gymnasium.Space[Any], name: str) -> dict[str, gymnasium.Space[Any]]:
    """List the spaces that a nested one holds, in their own order, as `name.key`; one that is not nested as `name`."""
    if isinstance(space, spaces.Dict):
        children = [(f"{name}.{key}", child) for key, child in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        children = [(f"{name}.{index}", child) for index, child in enumerate(space.spaces)]
    else:
        return {name: space}
    return {path: leaf for key, child in children for path, leaf in named_spaces(child, key).items()}
