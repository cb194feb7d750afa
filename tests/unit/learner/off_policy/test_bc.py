"""Behavior cloning: its loss for every kind of action, with a memory, and that it learns what was done."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.types import Batch, TrajectoryBatch
from surreal.learner import BCLearner
from surreal.model import ActorCritic, DeterministicActorCritic, DiscreteSoftActorCritic, QFunction, SoftActorCritic
from tests.unit.learner.off_policy.checks import BOX, HALF, assert_goes_on_bit_for_bit, one_step_task

MakeBatch = Callable[..., Batch]
MakeTrajectories = Callable[..., TrajectoryBatch]
CHOICES = spaces.MultiDiscrete([2, 3])


def test_loss_of_discrete_actions_is_the_mean_of_minus_log_p(make_batch: MakeBatch) -> None:
    batch = make_batch()
    model = ActorCritic([8], action_space=spaces.Discrete(2), seed=0)
    logits = model(batch.obs).policy.logits.detach()
    expected = -sum(math.log(logits[row].softmax(0)[batch.action[row]]) for row in range(16)) / 16
    learner = BCLearner(model)
    learner.optimize(0, batch)
    assert learner.reading["loss"] == pytest.approx(expected, rel=1e-5)


def test_loss_of_several_choices_adds_up(make_batch: MakeBatch) -> None:
    batch = make_batch()
    action = torch.stack([batch.action, torch.arange(16) % 3], dim=1)
    model = ActorCritic([8], action_space=CHOICES, seed=0)
    first, second = (part.logits.detach().softmax(1) for part in model(batch.obs).policy.parts)
    expected = -sum(math.log(first[i, action[i, 0]]) + math.log(second[i, action[i, 1]]) for i in range(16)) / 16
    learner = BCLearner(model)
    learner.optimize(0, batch._replace(action=action))
    assert learner.reading["loss"] == pytest.approx(expected, rel=1e-5)


def test_loss_of_one_action_is_the_squared_distance_in_units_of_the_range(make_continuous: MakeBatch) -> None:
    batch = make_continuous()
    model = DeterministicActorCritic([8], action_space=BOX, seed=0)
    error = (model(batch.obs) - batch.action).detach() / HALF
    expected = sum(0.5 * float(error[row, 0] ** 2 + error[row, 1] ** 2) for row in range(16)) / 16
    learner = BCLearner(model)
    learner.optimize(0, batch)
    assert learner.reading["loss"] == pytest.approx(expected, rel=1e-4)


def test_forbidden_actions_take_no_probability(make_batch: MakeBatch) -> None:
    batch = make_batch()
    legal = torch.zeros(16, 2, dtype=torch.bool).scatter(1, batch.action[:, None], True)
    learner = BCLearner(ActorCritic([8], action_space=spaces.Discrete(2), seed=0))
    learner.optimize(0, batch._replace(extras={"action_mask": legal}))
    assert learner.reading["loss"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "model",
    [DeterministicActorCritic([32], action_space=BOX, seed=0), ActorCritic([32], action_space=BOX, seed=0)],
    ids=["action", "normal"],
)
def test_it_learns_what_was_done(model: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    learner = BCLearner(model, initial_learning_rate=1e-2)
    for i in range(300):
        batch = one_step_task(torch.zeros(2), generator)
        learner.optimize(i, batch._replace(action=1.0 + batch.obs[:, :2]))
    obs = one_step_task(torch.zeros(2), generator).obs
    found = model(obs) if isinstance(model, DeterministicActorCritic) else model(obs).policy.mode()
    assert (found - 1.0 - obs[:, :2]).abs().mean() < 0.1


def test_a_memory_begins_empty_and_the_burn_in_and_rows_without_a_step_are_not_cloned(
    make_trajectories: MakeTrajectories,
) -> None:
    batch = make_trajectories(rows=5)
    mask = batch.mask.clone()
    mask[4, 1] = 0.0
    batch = batch._replace(mask=mask)  # burn-in 2
    model = ActorCritic([8], action_space=spaces.Discrete(2), use_lstm=True, lstm_size=4, seed=0)
    model(batch.obs[0])  # makes its layers
    losses = []
    for column in range(3):
        state = None
        for row in range(5):
            output, state = model(batch.obs[row, column][None], state, torch.zeros(1, dtype=torch.bool))
            if row >= 2 and mask[row, column]:
                losses.append(-output.policy.log_probability(batch.action[row, column][None]).item())
    learner = BCLearner(model)
    learner.optimize(0, batch)
    assert len(losses) == 8 and learner.reading["loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_observations_may_be_nested_and_are_counted_by_the_models_filter(make_continuous: MakeBatch) -> None:
    batch = make_continuous()
    nested = batch._replace(obs={"a": batch.obs[:, :1], "b": batch.obs[:, 1:]})
    model = SoftActorCritic([8], action_space=BOX, normalize_obs=True, seed=0)
    learner = BCLearner(model)
    learner.optimize(0, nested)
    assert model.obs_filter is not None and not model.obs_filter.is_empty
    assert {"loss", "entropy"} <= learner.reading.keys()


@pytest.mark.parametrize("model", [ActorCritic, DiscreteSoftActorCritic])
def test_a_restored_learner_goes_on_bit_for_bit(make_batch: MakeBatch, tmp_path: Path, model: Any) -> None:
    def make() -> BCLearner:
        return BCLearner(model([8], action_space=spaces.Discrete(2), seed=0))

    assert_goes_on_bit_for_bit(make, [make_batch(seed) for seed in range(6)], tmp_path)


def test_a_model_without_a_policy_is_refused(make_batch: MakeBatch) -> None:
    learner = BCLearner(QFunction([8], action_space=2))
    with pytest.raises(ValueError, match="QFunction; what it gives is neither a policy nor an action"):
        learner.optimize(0, make_batch())
