"""A replay with a custom data structure, whose `_insert` returns nothing and whose rows are a list."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from naive_replay import pump

from surreal.base.types import Batch, SampleInfo
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.replay import Replay, UniformReplay
from surreal.replay.turn import next_batches

Row = tuple[Any, int, float, Any, bool]


class ListReplay(Replay[Batch]):
    """Keeps the last 30 transitions in a deque."""

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.rows: deque[Row] = deque(maxlen=30)

    def _insert(self, table: Any) -> None:  # type: ignore[override]
        columns, obs = table.columns, table.leaves[0]
        for i in table.own:
            row = table.obs_row[i]
            self.rows.append(
                (
                    obs[row].copy(),
                    int(columns["action"][i]),
                    float(columns["reward"][i]),
                    obs[row + 1].copy(),
                    bool(table.terminated[i]),
                )
            )

    def _sample(self, batch_size: int) -> list[Row]:
        return [self.rows[i] for i in self.rng.integers(len(self.rows), size=batch_size)]

    def start_sample_condition(self) -> bool:
        return len(self.rows) >= 20

    def aggregate_batch(self, rows: list[Row]) -> Batch:
        obs, action, reward, next_obs, terminated = (
            torch.as_tensor(np.array(column)) for column in zip(*rows, strict=True)
        )
        count = np.arange(len(rows))
        return Batch(
            obs.float(), action, reward.float(), self.gamma * (~terminated).float(), next_obs.float(), {},
            SampleInfo(count, np.full(len(rows), 1.0 / len(self.rows)), count),
        )  # fmt: skip


@pytest.mark.parametrize("observations", ["mirrored", "auto"])
def test_rows_of_a_structure_of_its_own_reach_the_learner(observations: str, run: Any) -> None:
    replay = ListReplay(
        run.client, batch_size=4, capacity=1000, start_size=1, prefetch=1, seed=0, gamma=0.5, observations=observations,
        samples_per_insert=2.0, samples_per_insert_tolerance=100.0,
    )  # fmt: skip
    run.replays.append(replay)
    sender = run.sender(chunk_steps=10)
    for step in range(60):
        sender.send([np.full(3, step, np.float32), np.full(3, step + 1, np.float32)], step % 2, float(step), False, {})
    sender.flush()
    pump(replay, steps=60)
    learner = DQNLearner(QFunction([8], action_space=Discrete(2)))
    for i in range(3):
        while not len(replay.fetcher_queue):
            assert replay.step(timeout_s=0)
        batch = replay.dequeue(1.0)
        assert batch is not None
        assert torch.equal(batch.obs[:, 0], batch.reward)
        assert torch.equal(batch.next_obs, batch.obs + 1)
        assert batch.reward.min() >= 30  # the last 30
        assert all(np.isfinite(value) for value in learner.optimize(i, batch).values())
    assert replay.num_samples >= 12


def test_an_insert_that_returns_nothing_may_use_the_built_in_store(run: Any) -> None:
    class Counting(UniformReplay):
        seen = 0

        def _insert(self, table: Any) -> None:  # type: ignore[override]
            self.seen += len(super()._insert(table) or ())

    replay = Counting(run.client, batch_size=4, capacity=25, start_size=1, prefetch=1, seed=0)
    run.replays.append(replay)
    sender = run.sender(chunk_steps=10)
    for step in range(60):
        sender.send([np.full(3, step, np.float32), np.full(3, step + 1, np.float32)], 0, float(step), False, {})
    sender.flush()
    pump(replay, steps=60)
    assert replay.seen == 60
    assert len(replay) <= 25 + 10  # what is over the capacity has left
    batch = replay.dequeue(0.0) or next_batches(replay, replay.state)[0]
    assert batch is not None
    assert torch.equal(batch.obs[:, 0], batch.reward)
