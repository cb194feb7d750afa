"""IQL: one update by the formulas, what an expectile is, and that the better of the actions taken are cloned."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from surreal.base.types import Batch
from surreal.learner import IQLLearner
from surreal.learner.off_policy.iql import expectile_loss
from surreal.model import DeterministicActorCritic, ImplicitActorCritic
from tests.unit.learner.off_policy.checks import BOX, HALF, assert_goes_on_bit_for_bit, transitions

MakeBatch = Callable[..., Batch]


def made(hiddens: tuple[int, ...] = (8,), **args: Any) -> Any:
    return IQLLearner(ImplicitActorCritic(hiddens, action_space=BOX, seed=0), **args)


def test_one_update_is_the_formula(make_continuous: MakeBatch) -> None:
    batch = make_continuous(weight=0.5)
    learner = made(target_update_tau=0.1, initial_learning_rate=1e-2, max_weight=1.2)
    learner.optimize(0, batch)
    reference, twin = made().model, made().model
    for model in (reference, twin):
        model(batch.obs)
    value_loss, critic_loss, policy_loss, weights = torch.zeros(()), torch.zeros(()), torch.zeros(()), []
    for row in range(16):
        obs, next_obs, action = batch.obs[row : row + 1], batch.next_obs[row : row + 1], batch.action[row : row + 1]
        best = twin.critic(obs, action).min().item()
        value = reference.value(obs)[0, 0]
        error = best - value
        value_loss = value_loss + (0.7 if error > 0 else 0.3) * error**2 / 16
        target = (batch.reward[row] + batch.discount[row] * twin.value(next_obs)[0, 0]).item()
        for member in range(2):
            critic_loss = critic_loss + 0.5 * (reference.critic(obs, action)[member, 0] - target) ** 2 / 16
        weights.append(min(math.exp(3.0 * error.item()), 1.2))
        distance = 0.5 * (((reference.actor(obs) - action) / HALF) ** 2).sum()
        policy_loss = policy_loss + weights[-1] * distance / 16
    assert 1.2 in weights and min(weights) < 1.0
    for part, loss in (("value", value_loss), ("critic", critic_loss), ("actor", policy_loss)):
        optimizer = torch.optim.Adam(getattr(reference, part).parameters(), lr=1e-2)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for name, tensor in learner.model.tensors().items():
        torch.testing.assert_close(tensor, reference.tensors()[name], rtol=1e-3, atol=1e-5)
    for name, tensor in learner.target.network.tensors().items():
        followed = twin.critic.tensors()[name].lerp(reference.critic.tensors()[name], 0.1)
        torch.testing.assert_close(tensor, followed, rtol=1e-3, atol=1e-5)
    for metric, loss in (("loss", critic_loss), ("value_loss", value_loss), ("policy_loss", policy_loss)):
        assert learner.reading[metric] == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.parametrize(("expectile", "expected"), [(0.5, 2.0), (0.9, 3.6), (0.1, 0.4)])
def test_the_loss_is_least_at_the_expectile(expectile: float, expected: float) -> None:
    targets = torch.tensor([0.0, 4.0])
    candidates = torch.linspace(0.0, 4.0, 401)
    losses = [float(expectile_loss(each.expand(2), targets, expectile)) for each in candidates]
    assert float(candidates[losses.index(min(losses))]) == pytest.approx(expected, abs=0.011)


def test_it_clones_the_better_of_the_actions_taken() -> None:
    generator, learner = torch.Generator().manual_seed(0), made((32,), initial_learning_rate=3e-3)
    good, bad = torch.tensor([2.0, 8.0]), torch.tensor([0.0, 2.0])
    for i in range(400):
        is_good = torch.rand(64, generator=generator) < 0.3
        obs = torch.rand(64, 4, generator=generator) - 0.5
        learner.optimize(i, transitions(obs, torch.where(is_good[:, None], good, bad), 3.0 * is_good.float()))
    found = learner.model(torch.rand(64, 4, generator=generator) - 0.5)
    assert ((found - good) / HALF).abs().mean() < 0.1


def test_a_restored_learner_goes_on_bit_for_bit(make_continuous: MakeBatch, tmp_path: Path) -> None:
    assert_goes_on_bit_for_bit(made, [make_continuous(seed) for seed in range(6)], tmp_path)


def test_models_that_it_cannot_learn_are_refused() -> None:
    with pytest.raises(ValueError, match="must be an ImplicitActorCritic"):
        IQLLearner(DeterministicActorCritic(action_space=BOX))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="critic_output is 'quantile'; IQL learns values"):
        ImplicitActorCritic(action_space=BOX, critic_output="quantile")
