"""`UpdateNoise`: random numbers of an update, by its number."""

from __future__ import annotations

import numpy as np
import torch


class UpdateNoise:
    """A generator that each update begins anew, from a seed and the update's number.

    So a checkpoint needs to keep nothing of it: who goes on from update n draws what an uninterrupted learner draws.

    Args:
        seed: of the learner, >= 0.
        device: where the numbers are drawn.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed = seed
        self._generator = torch.Generator(device)

    def of(self, update: int) -> torch.Generator:
        """Give the generator as it is at the beginning of an update, >= 0."""
        # Neighbouring seeds of torch's generator give related streams; SeedSequence spreads them.
        state = np.random.SeedSequence((self._seed, update)).generate_state(1, np.uint64)
        return self._generator.manual_seed(int(state[0] >> np.uint64(1)))
