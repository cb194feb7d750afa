"""Batches for learners: random, reproducible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from surreal.base.types import Batch, SampleInfo, TrajectoryBatch

MakeBatch = Callable[..., Batch]
MakeTrajectories = Callable[..., TrajectoryBatch]


@pytest.fixture
def make_batch() -> MakeBatch:
    def make(seed: int = 0, rows: int = 16, weight: float | None = None) -> Batch:
        rng = np.random.default_rng(seed)
        info = SampleInfo(rng.integers(0, 1000, rows), np.full(rows, 1 / rows), np.zeros(rows, np.int64))
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


@pytest.fixture
def make_trajectories() -> MakeTrajectories:
    def make(seed: int = 0, rows: int = 4, columns: int = 3) -> TrajectoryBatch:
        rng = np.random.default_rng(seed)
        generation = np.arange(columns)
        info = SampleInfo(generation, np.ones(columns), np.zeros(columns, np.int64))
        shape = (rows, columns)
        return TrajectoryBatch(
            obs=torch.tensor(rng.normal(size=(rows + 1, columns, 4)), dtype=torch.float32),
            action=torch.tensor(rng.integers(0, 2, shape)),
            reward=torch.tensor(rng.random(shape), dtype=torch.float32),
            discount=torch.full(shape, 0.99),
            mask=torch.ones(shape),
            is_first=torch.zeros((rows + 1, columns), dtype=torch.bool),
            terminated=torch.zeros(shape, dtype=torch.bool),
            truncated=torch.zeros(shape, dtype=torch.bool),
            version=torch.zeros(shape, dtype=torch.int64),
            extras={"value": torch.zeros(shape)},
            initial_state={"state.h": torch.zeros(columns, 8), "state.c": torch.zeros(columns, 8)},
            sample_info=info,
            burn_in=2,
        )

    return make
