"""PrioritizedSequenceReplay without Redis: what is drawn and how often, against a list of starts and priorities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal.base.types import TrajectoryBatch
from surreal.replay import PrioritizedSequenceReplay
from tests.unit.replay.test_prioritized import EPSILON, Feeding

LENGTH, BURN_IN = 4, 1


class Fed(Feeding, PrioritizedSequenceReplay):
    """A replay of sequences of four rows that gets its chunks, each a lane of its own, from a test."""


def fed(**options: Any) -> Fed:
    return Fed(sequence_length=LENGTH, burn_in=BURN_IN, **options)


@pytest.mark.parametrize("steps", [(20, 17), (5, 4, 4)])
def test_sequences_are_drawn_as_often_as_their_priorities_say(steps: tuple[int, ...]) -> None:
    replay = fed(priority_exponent=0.9, batch_size=40, importance_exponent_steps=None)
    replay.take(*steps)
    total = sum(steps)
    ends = np.cumsum(steps)
    # The last three steps of a lane begin no whole sequence, however surprising they are.
    starts = [i for i in range(total) if ends[np.searchsorted(ends, i, side="right")] - i >= LENGTH]
    errors = np.random.default_rng(0).random(total) + 0.1
    replay.tell(np.arange(total), errors)
    draws, counts = 1500, np.zeros(total)
    batch: TrajectoryBatch = replay.draw()
    for _ in range(draws):
        batch = replay.draw()
        np.add.at(counts, batch.sample_info.generation, 1)
    assert set(np.flatnonzero(counts)) == set(starts)
    weights = (errors[starts] + EPSILON) ** 0.9
    expected = weights / weights.sum() * 40 * draws
    # Independent draws vary by the root of what is expected; four times that is exceeded in one case of 16,000.
    assert (np.abs(counts[starts] - expected) < 4.0 * np.sqrt(expected)).all()
    probability = (batch.sample_info.generation[:, None] == np.array(starts)) @ weights
    np.testing.assert_allclose(batch.extras["weight"], (probability / probability.min()) ** -0.4, rtol=2e-3)
    assert batch.reward.shape == (LENGTH, 40)


def test_beta_counts_batches_although_each_sequence_counts_for_several_steps() -> None:
    replay = fed(importance_exponent=0.0, importance_exponent_end=1.0, importance_exponent_steps=100)
    replay.take(20)
    for _ in range(40):
        replay.draw()
    assert replay.importance_exponent == 0.4


def test_priorities_survive_a_restart_and_follow_what_is_evicted(tmp_path: Path) -> None:
    replay = fed(capacity=30)
    replay.take(12, 12)
    replay.tell(np.arange(24), np.arange(24) + 1.0)
    before = replay.priorities()
    replay.save_priorities(tmp_path / "file.safetensors")
    again = fed(capacity=30)
    again.load_priorities(tmp_path / "file.safetensors")
    again.take(12, 12)
    assert again.priorities() == before
    again.take(12)
    assert set(again.priorities()) == set(range(12, 36))
    assert min(again.draw().sample_info.generation) >= 12
