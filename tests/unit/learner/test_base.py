from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.errors import CheckpointError
from surreal.base.pytorch import tensors_of
from surreal.base.types import Batch, TrajectoryBatch
from surreal.learner import Learner
from surreal.learner.stepping.devices import batch_to
from surreal.model import QFunction

MakeBatch = Callable[..., Batch]
MakeTrajectories = Callable[..., TrajectoryBatch]


class CountingLearner(Learner):
    """What a user writes at least."""

    value = 1.0

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        return {"value": self.value * (i + 1)}


def made(metrics_interval: int = 100) -> CountingLearner:
    return CountingLearner(QFunction(hiddens=[4], action_space=2), metrics_interval=metrics_interval)


def test_metrics_are_read_every_interval(make_batch: MakeBatch) -> None:
    learner = made(metrics_interval=3)
    seen = [learner.optimize(i, make_batch()) for i in range(7)]
    assert seen == [{"value": 1.0}, {}, {}, {"value": 4.0}, {}, {}, {"value": 7.0}]
    metrics = learner.metrics()
    assert metrics["learner/updates_total"] == 7.0
    assert metrics["learner/optimize_ms"] > 0.0
    assert "learner/value" not in metrics, "what belongs to an update is in its reading only"


def test_what_was_read_of_an_update_is_reported_once_at_its_place(make_batch: MakeBatch) -> None:
    learner = made(metrics_interval=2)
    for i in range(3):
        learner.on_global_step(10 * (i + 1))
        learner.optimize(i, make_batch())
    first, third = learner.readings.take()
    assert (first.step, first.values) == (10, {"learner/value": 1.0, "learner/updates_total": 1.0})
    assert (third.step, third.values) == (30, {"learner/value": 3.0, "learner/updates_total": 3.0})
    assert first.time <= third.time
    assert learner.readings.take() == []


def test_model_gets_its_shape_from_the_first_batch(make_batch: MakeBatch) -> None:
    learner = made()
    nested = {"position": torch.zeros(5, 3), "velocity": (torch.zeros(5), torch.zeros(5, 2, 2))}
    learner.optimize(0, make_batch()._replace(obs=nested, next_obs=nested))
    assert learner.is_ready
    assert learner.model(nested).shape == (5, 2)
    assert (4, 3 + 1 + 4) in {tuple(tensor.shape) for tensor in learner.model.tensors().values()}


def test_a_user_learner_saves_and_restores_its_model(make_batch: MakeBatch) -> None:
    learner, other = made(), made()
    learner.on_global_step(500)
    for i in range(2):
        learner.optimize(i, make_batch())
    learner.model.version = 7
    other.load_state_dict(learner.state_dict())
    assert (other.updates, other.global_step, other.version) == (2, 500, 7)
    for name, tensor in learner.model.tensors().items():
        assert torch.equal(tensor, other.model.tensors()[name])


def test_metrics_say_how_old_the_experience_of_a_batch_is(make_batch: MakeBatch) -> None:
    class Replay:
        global_step, wants_priorities = 0, False

        def update_priorities(self, *_: Any) -> None: ...

    learner = CountingLearner(QFunction(hiddens=[4], action_space=2), Replay(), metrics_interval=1)
    learner.model.version = 9
    batch = make_batch(rows=4)
    info = batch.sample_info._replace(version=np.array([-1, 5, 6, 7]), age_steps=np.array([0, 10, 20, 30]))
    metrics = learner.optimize(0, batch._replace(sample_info=info))
    assert (metrics["batch_lag_versions"], metrics["batch_age_steps"]) == (3.0, 15.0)
    metrics = learner.optimize(1, batch._replace(sample_info=info._replace(version=np.full(4, -1), age_steps=None)))
    assert metrics.keys() == {"value"}


@pytest.mark.parametrize("updates", [None, "many", []])
def test_learner_state_that_makes_no_sense_is_refused(make_batch: MakeBatch, updates: object) -> None:
    learner = made()
    learner.optimize(0, make_batch())
    state = learner.state_dict()
    state["state"]["updates"] = updates
    with pytest.raises(CheckpointError, match="has no updates, global_step or version"):
        made().load_state_dict(state)


def test_global_step_never_decreases() -> None:
    learner = made()
    learner.on_global_step(10)
    learner.on_global_step(3)
    assert learner.global_step == 10


def test_a_loss_that_is_not_finite_is_a_warning(make_batch: MakeBatch, caplog: pytest.LogCaptureFixture) -> None:
    learner = made()
    learner.value = float("nan")
    with caplog.at_level(logging.WARNING):
        learner.optimize(0, make_batch())
    assert "value is not finite" in caplog.text


def test_trajectories_are_moved_and_shape_the_model(make_trajectories: MakeTrajectories) -> None:
    batch = make_trajectories(rows=5, columns=3)
    moved = batch_to(batch, torch.device("meta"))
    assert moved.sample_info is batch.sample_info
    assert moved.burn_in == batch.burn_in == 2
    assert len(list(tensors_of(batch))) == len(list(tensors_of(moved))) == 12
    assert all(tensor.is_meta for tensor in tensors_of(moved))
    learner = made()
    learner.optimize(0, batch)
    assert learner.model(batch.obs[0]).shape == (3, 2)
    assert learner.model(batch.obs[:, 0]).shape == (6, 2)
