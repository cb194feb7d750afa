from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from surreal.base.errors import CheckpointError
from surreal.base.pytorch import tensors_of
from surreal.base.types import Batch, TrajectoryBatch
from surreal.learner import DQNLearner, Learner
from surreal.learner.stepping import devices
from surreal.learner.stepping.devices import BatchMover, available_devices, batch_to, resolve_device
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


def test_devices_by_name() -> None:
    assert resolve_device("cpu").type == "cpu"
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in available_devices():
        assert str(resolve_device(name)) == name
    for name in ("cuda:99", "tpu", "cuda:x"):
        with pytest.raises(ValueError, match=f"device is '{name}', but torch has only cpu"):
            resolve_device(name)


def test_devices_that_torch_can_use_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert available_devices() == ["cpu", "cuda:0", "cuda:1", "mps"]
    assert [str(resolve_device(name)) for name in ("cuda", "cuda:1", "mps")] == ["cuda", "cuda:1", "mps"]


def test_batch_to_keeps_nesting_and_sample_info(make_batch: MakeBatch) -> None:
    nested = {"a": torch.zeros(2), "b": (torch.ones(2),)}
    batch = make_batch(weight=2.0)._replace(obs=nested)
    moved = batch_to(batch, torch.device("cpu"))
    assert torch.equal(moved.obs["b"][0], torch.ones(2))
    assert torch.equal(moved.extras["weight"], batch.extras["weight"])
    assert moved.sample_info is batch.sample_info


def test_copies_have_a_stream_of_their_own_for_which_the_computation_waits(
    make_batch: MakeBatch, make_trajectories: MakeTrajectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Computing:
        def wait_stream(self, stream: str) -> None:
            events.append(f"wait for {stream}")

    @contextmanager
    def in_stream(stream: str) -> Iterator[None]:
        events.append(f"enter {stream}")
        yield
        events.append("leave")

    def move(batch: Any, device: torch.device) -> Any:
        events.append(f"copy to {device}")
        return batch

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"copies of {device}")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Computing())
    monkeypatch.setattr(torch.cuda, "stream", in_stream)
    monkeypatch.setattr(devices, "batch_to", move)
    mover = BatchMover(torch.device("cuda"))
    for batch in (make_batch(), make_trajectories()):
        assert mover(batch) is batch
        assert events == ["enter copies of cuda", "copy to cuda", "leave", "wait for copies of cuda"]
        events.clear()


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("is_pinned", [False, True])
def test_batches_arrive_whole_on_a_gpu_that_is_busy(make_batch: MakeBatch, is_pinned: bool) -> None:
    device = torch.device("cuda")
    mover, busy = BatchMover(device), torch.randn(2048, 2048, device=device)
    sums, expected = [], []
    for seed in range(50):
        batch = make_batch(seed, rows=4096)
        expected.append(float(batch.obs.double().sum()))
        if is_pinned:
            batch = batch._replace(obs=batch.obs.pin_memory(), next_obs=batch.next_obs.pin_memory())
        busy = torch.tanh(busy @ busy)
        moved = mover(batch)
        assert moved.obs.is_cuda
        assert moved.extras.keys() == batch.extras.keys()
        sums.append(moved.obs.double().sum())
    torch.testing.assert_close(torch.stack(sums).cpu(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_dqn_on_a_gpu_follows_the_cpu(make_batch: MakeBatch) -> None:
    learners = [DQNLearner(QFunction(hiddens=[8], action_space=2, seed=0), device=name) for name in ("cpu", "cuda")]
    for i in range(5):
        for learner in learners:
            learner.optimize(i, make_batch(i))
    ours, theirs = (learner.model.tensors() for learner in learners)
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name].cpu(), rtol=1e-3, atol=1e-5)
