"""`ActionRange`: the bounds of continuous actions, and the way between them and [-1, 1]."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn


class ActionRange(nn.Module):
    """Translates between actions of an environment and actions scaled to [-1, 1] in each component.

    Its tensors move with the module that it is in. They are no parameters: every process has them of the environment.

    Args:
        action_space: Box of one axis, float32, with finite bounds.

    Raises:
        ValueError: it is another space.
    """

    low: Tensor
    high: Tensor
    center: Tensor
    half_range: Tensor
    log_half_range: Tensor
    _factor: Tensor
    _offset: Tensor

    def __init__(self, action_space: gymnasium.Space[Any]) -> None:
        super().__init__()
        if not isinstance(action_space, spaces.Box) or len(action_space.shape) != 1 or action_space.dtype != np.float32:
            raise ValueError(f"actions are {action_space}; use a vector Box of float32")
        low, high = action_space.low.astype(np.float64), action_space.high.astype(np.float64)
        if not np.isfinite(high - low).all() or not (low < high).all():
            raise ValueError(f"actions are {action_space}; bounds must be finite, and low below high")
        self.num_components = len(low)
        center, half_range = (low + high) / 2.0, (high - low) / 2.0
        numbers = {
            "low": low,
            "high": high,
            "center": center,
            "half_range": half_range,
            "log_half_range": np.log(half_range),
            "_factor": 1.0 / half_range,
            "_offset": -center / half_range,
        }
        for name, values in numbers.items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32), persistent=False)

    def to_env(self, scaled: Tensor) -> Tensor:
        """Turn actions [..., n] in [-1, 1] into those of the environment; up to rounding within its bounds."""
        return torch.addcmul(self.center, scaled, self.half_range)

    def to_scaled(self, action: Tensor) -> Tensor:
        """Turn actions [..., n] of the environment into [-1, 1]."""
        return torch.addcmul(self._offset, action, self._factor)

    def clip(self, action: Tensor) -> Tensor:
        """Bring actions [..., n] of the environment within its bounds."""
        return action.clamp(self.low, self.high)
