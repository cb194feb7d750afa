"""`AdaptiveKL`: the coefficient of PPO's penalty, which follows how far updates really go."""

from __future__ import annotations

import torch
from torch import Tensor


class AdaptiveKL:
    """A coefficient that doubles or halves, Schulman et al. 2017 section 4, arXiv:1707.06347.

    Args:
        target: divergence that an update should have, in nats, > 0; raising it allows larger steps.
        coefficient: the first one, > 0; it soon matters no more.
    """

    def __init__(self, target: float, coefficient: float = 1.0) -> None:
        self.target = target
        self._coefficient = torch.tensor(coefficient, dtype=torch.float64)

    @property
    def coefficient(self) -> float:
        """Of the next update."""
        return float(self._coefficient)

    def after_update(self, divergence: float) -> None:
        """Follow the divergence, in nats, of an update that is done."""
        if divergence < self.target / 1.5:
            self._coefficient /= 2.0
        elif divergence > self.target * 1.5:
            self._coefficient *= 2.0
        self._coefficient.clamp_(1e-6, 1e6)

    def tensors(self) -> dict[str, Tensor]:
        """Give what a checkpoint keeps."""
        return {"coefficient": self._coefficient}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Take over what a checkpoint kept."""
        self._coefficient.copy_(tensors["coefficient"])
