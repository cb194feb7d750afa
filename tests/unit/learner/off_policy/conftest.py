"""Batches with continuous actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.types import Batch

MakeBatch = Callable[..., Batch]


@pytest.fixture
def make_continuous(make_batch: MakeBatch) -> MakeBatch:
    """Batches whose actions are of the box [-1, 3] x [0, 10]."""

    def make(seed: int = 0, rows: int = 16, **options: Any) -> Batch:
        action = np.random.default_rng(seed).uniform([-1, 0], [3, 10], (rows, 2))
        return make_batch(seed, rows, **options)._replace(action=torch.tensor(action, dtype=torch.float32))

    return make
