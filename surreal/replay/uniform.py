"""UniformReplay: every live transition is sampled with the same probability (Mnih et al. 2013, arXiv:1312.5602)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal.base.types import Batch
from surreal.replay.base import Replay
from surreal.replay.engine.sampling import sample_uniform


class UniformReplay(Replay[Batch]):
    """Uniform sampling with replacement; arguments as in `Replay`."""

    def _sample(self, batch_size: int) -> NDArray[np.int64]:
        alive = self.alive
        return sample_uniform(self.rng, alive.start, alive.stop, batch_size)
