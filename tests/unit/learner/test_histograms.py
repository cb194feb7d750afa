"""Histograms of learners: exact counts, the interval, and nothing where none are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.metrics import Histogram
from surreal.base.types import Batch, TrajectoryBatch
from surreal.learner import DDPGLearner, DQNLearner, Learner, SACLearner
from surreal.learner.stepping import reports
from surreal.learner.stepping.reports import MAX_TENSORS, Histograms, step_values
from surreal.model import DeterministicActorCritic, QFunction, SoftActorCritic

MakeBatch = Callable[..., Batch]
MakeTrajectories = Callable[..., TrajectoryBatch]
BOX = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, 10.0], np.float32))


def dqn(interval: int | None, **options: Any) -> DQNLearner:
    return DQNLearner(QFunction([6], action_space=2, seed=0), None, histogram_interval=interval, **options)


def continuous(batch: Batch) -> Batch:
    return batch._replace(action=torch.rand(len(batch.reward), 2))


def assert_of(histogram: Histogram, values: Tensor) -> None:
    counts, edges = np.histogram(values.detach().double().numpy(), bins=len(histogram.counts))
    np.testing.assert_array_equal(histogram.counts, counts)
    np.testing.assert_array_equal(histogram.edges, edges)
    assert histogram.size == values.numel()


def test_an_update_that_is_due_has_the_counts_of_all_it_saw_and_left(make_batch: MakeBatch) -> None:
    learner, twin = dqn(1, gradients_norm_clipping=1e-3), dqn(None)
    batch = make_batch()
    learner.optimize(0, batch)
    twin.optimize(0, batch)
    found = learner.histograms.take()
    assert_of(found.pop("learner/obs"), batch.obs)
    assert_of(found.pop("learner/action"), batch.action)
    parameters = dict(learner.model.named_parameters())
    for name, parameter in parameters.items():
        assert_of(found.pop(f"weights/{name}"), parameter)
        # Those of the twin are smaller than its bound, and so are as they were computed.
        assert_of(found.pop(f"gradients/{name}"), dict(twin.model.named_parameters())[name].grad)  # type: ignore[arg-type]
    assert not found
    assert not learner.histograms.take()


def test_nothing_is_computed_unless_it_is_asked_for(make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a histogram was computed")

    for name in ("summarize", "step_values", "_gathered_names"):
        monkeypatch.setattr(reports, name, refuse)
    learner = dqn(None)
    learner.optimize(0, make_batch())
    assert not learner.histograms.take()


def test_between_two_that_are_due_an_update_computes_nothing(
    make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = dqn(2)
    learner.optimize(0, make_batch())
    monkeypatch.setattr(reports, "summarize", None)
    learner.optimize(1, make_batch())


def test_updates_are_shown_by_the_interval(make_batch: MakeBatch) -> None:
    learner, shown = dqn(3), []
    for i in range(8):
        learner.optimize(i, make_batch(i))
        found = learner.histograms.take()
        if found:
            shown.append(i)
            assert_of(found["learner/obs"], make_batch(i).obs)
            assert any(name.startswith("gradients/") for name in found)
    assert shown == [0, 3, 6]


def test_what_was_not_taken_is_replaced_by_what_is_newer(make_batch: MakeBatch) -> None:
    learner = dqn(1)
    for i in range(3):
        learner.optimize(i, make_batch(i))
    assert_of(learner.histograms.take()["learner/obs"], make_batch(2).obs)


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_out_of_range_is_refused(interval: int) -> None:
    with pytest.raises(ValueError, match=f"histogram_interval is {interval}; it must be >= 1"):
        dqn(interval)


def test_numbers_that_are_not_finite_are_left_out(make_batch: MakeBatch) -> None:
    learner, batch = dqn(1), make_batch()
    batch.obs[:3] = torch.nan
    batch.reward[:] = torch.nan
    learner.optimize(0, batch)
    found = learner.histograms.take()
    assert found["learner/obs"].size == 13 * 4
    assert not any(name.startswith("gradients/") for name in found), "all of them are nan"
    assert all(np.isfinite(histogram.edges).all() for histogram in found.values())


def test_actors_that_move_more_seldom_than_histograms_are_due_show_their_next_gradients(make_batch: MakeBatch) -> None:
    model = DeterministicActorCritic((8,), action_space=BOX, seed=0)
    learner = DDPGLearner(model, policy_delay=2, histogram_interval=2)
    kinds = []
    for i in range(4):
        batch = continuous(make_batch(i))
        learner.optimize(i, batch)
        found = learner.histograms.take()
        kinds.append({name.partition(".")[0] for name in found})
        if i == 2:
            assert_of(found["learner/mu"], model.actor(batch.obs))
    due = {"learner/obs", "learner/action", "learner/mu", "weights/actor", "weights/critic", "gradients/critic"}
    assert kinds == [due, {"gradients/actor"}, due, {"gradients/actor"}]


def test_a_squashed_policy_is_shown_before_it_is_squashed(make_batch: MakeBatch) -> None:
    model = SoftActorCritic((8,), action_space=BOX, seed=0)
    learner, batch = SACLearner(model, histogram_interval=1), continuous(make_batch())
    learner.optimize(0, batch)
    found, normal = learner.histograms.take(), model.actor(batch.obs).normal
    assert_of(found["learner/mu"], normal.mean)
    assert_of(found["learner/sigma"], normal.log_sigma.exp())
    assert found["weights/temperature.log_value"].size == 1


def test_rows_without_a_step_are_not_shown(make_trajectories: MakeTrajectories) -> None:
    batch = make_trajectories(rows=4, columns=3)
    batch.mask[1, 2] = 0.0
    nested = {"image": batch.obs, "pose": (batch.obs[..., 0], batch.obs[..., :2])}
    values = dict(step_values(batch._replace(obs=nested), {"mu": torch.rand(4, 3, 2)}))
    assert {name: len(each) for name, each in values.items()} == dict.fromkeys(
        ("obs.image", "obs.pose.0", "obs.pose.1", "action", "mu"), 11
    )
    torch.testing.assert_close(values["obs.image"], batch.obs[:-1][batch.mask > 0.0])


def test_large_observations_are_shown_by_some_of_their_steps(
    make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MAX_VALUES", 20)
    batch = make_batch(rows=16)
    values = dict(step_values(batch, {}))
    torch.testing.assert_close(values["obs"], batch.obs[::4])
    torch.testing.assert_close(values["action"], batch.action)


def test_tensors_of_a_module_count_together_where_there_are_too_many() -> None:
    learner = Histograms(1)
    layers = {f"torso.{i}": torch.full((2,), float(i)) for i in range(MAX_TENSORS)}
    learner.add_gradients("model", {f"{name}.{kind}": layers[name] for name in layers for kind in ("weight", "bias")})
    found = learner.take()
    assert found.keys() == {f"gradients/torso.{i}" for i in range(MAX_TENSORS)}
    assert (found["gradients/torso.7"].size, found["gradients/torso.7"].low) == (4, 7.0)
    learner.add_gradients("critic", {f"{i}.weight": torch.ones(1) for i in range(2 * MAX_TENSORS)})
    assert len(learner.take()) == MAX_TENSORS


class OwnLearner(Learner):
    """What a user writes at least."""

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        return {}


def test_a_learner_without_gradients_shows_its_model(make_batch: MakeBatch) -> None:
    learner = OwnLearner(QFunction([6], action_space=2), histogram_interval=1)
    learner.optimize(0, make_batch())
    names = {f"weights/{name}" for name, _ in learner.model.named_parameters()}
    assert learner.histograms.take().keys() == names | {"learner/obs", "learner/action"}
