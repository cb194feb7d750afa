"""The world of the on-policy tests, whose later columns were replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from surreal.base.types import TrajectoryBatch
from tests.unit.learner.on_policy.conftest import make_model, play

if TYPE_CHECKING:
    from surreal.model import ActorCritic
    from tests.unit.learner.on_policy.conftest import Play

__all__ = ["make_model", "mix", "play"]

Mix = Callable[..., TrajectoryBatch]


@pytest.fixture
def mix(play: Play) -> Mix:
    """Let a model act, and mark the later half of the columns as replayed."""

    def mix(model: ActorCritic, seed: int = 0, **options: Any) -> TrajectoryBatch:
        batch = play(model, seed=seed, **options)
        is_on_policy = torch.zeros(batch.mask.shape, dtype=torch.bool)
        is_on_policy[:, : batch.mask.shape[1] // 2] = True
        return batch._replace(extras={**batch.extras, "is_on_policy": is_on_policy})

    return mix
