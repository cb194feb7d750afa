"""Batches for learners: random, reproducible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from surreal.types import Batch, SampleInfo

MakeBatch = Callable[..., Batch]


@pytest.fixture
def make_batch() -> MakeBatch:
    def make(seed: int = 0, rows: int = 16, weight: float | None = None) -> Batch:
        rng = np.random.default_rng(seed)
        slots = rng.integers(0, 1000, rows)
        info = SampleInfo(slots, slots + 7, np.full(rows, 1 / rows), np.zeros(rows, np.int64))
        return Batch(
            obs=torch.tensor(rng.normal(size=(rows, 4)), dtype=torch.float32),
            action=torch.tensor(rng.integers(0, 2, rows)),
            reward=torch.tensor(rng.random(rows), dtype=torch.float32),
            discount=torch.tensor(0.99 * (rng.random(rows) < 0.8), dtype=torch.float32),
            next_obs=torch.tensor(rng.normal(size=(rows, 4)), dtype=torch.float32),
            extras={} if weight is None else {"weight": torch.full((rows,), weight)},
            sample_info=info,
        )

    return make
