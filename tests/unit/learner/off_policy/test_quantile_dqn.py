"""Quantile regression: the loss against a naive loop, and what is learned of a known distribution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.types import Batch
from surreal.learner import QuantileDQNLearner
from surreal.model import NoisyQFunction, NoisyQuantileQFunction, QFunction, QuantileQFunction
from surreal.model.off_policy.critic_outputs import quantile_huber_loss
from tests.unit.learner.off_policy.checks import assert_goes_on_bit_for_bit

MakeBatch = Callable[..., Batch]


def made(num_quantiles: int = 5, hiddens: tuple[int, ...] = (8,), dueling: bool = False, **args: Any) -> Any:
    model = QuantileQFunction(hiddens, action_space=2, num_quantiles=num_quantiles, dueling=dueling, seed=0)
    return QuantileDQNLearner(model, None, **args)


@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_loss_is_the_formula(kappa: float) -> None:
    quantiles, target = torch.randn(3, 4), torch.randn(3, 6)
    losses = quantile_huber_loss(quantiles, target, kappa)
    for row in range(3):
        expected = 0.0
        for i in range(4):
            for j in range(6):
                u = (target[row, j] - quantiles[row, i]).item()
                huber = 0.5 * u**2 if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                expected += abs((i + 0.5) / 4 - (u < 0)) * huber / kappa / 6
        assert losses[row].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dueling", [False, True])
def test_values_are_the_means_of_the_quantiles(make_batch: MakeBatch, dueling: bool) -> None:
    model = made(dueling=dueling).model
    obs = make_batch().obs
    assert model(obs).shape == (16, 2)
    torch.testing.assert_close(model(obs), model.quantiles(obs).mean(-1))


@pytest.mark.parametrize("double", [False, True])
def test_target_is_the_distribution_of_the_best_action(make_batch: MakeBatch, double: bool) -> None:
    learner = made(double=double)
    for i in range(20):
        learner.optimize(i, make_batch(i))
    batch = make_batch(99)
    batch.extras["next_action_mask"] = legal = torch.tensor([[True, False], [True, True]] * 8)  # type: ignore[index]
    quantiles, target = learner.estimate(batch)
    frozen = learner.target.network
    for row in range(16):
        values = (learner.model if double else frozen)(batch.next_obs)[row]
        best = int(values.masked_fill(~legal[row], -torch.inf).argmax())
        expected = batch.reward[row] + batch.discount[row] * frozen.quantiles(batch.next_obs)[row, best]
        torch.testing.assert_close(target[row], expected)
        taken = learner.model.quantiles(batch.obs)[row, batch.action[row]]
        torch.testing.assert_close(quantiles[row], taken)


@pytest.mark.slow
def test_learns_the_quantiles_of_random_rewards(make_batch: MakeBatch) -> None:
    learner = made(4, (16,), huber_delta=0.01, initial_learning_rate=1e-2, use_linear_schedule=True,
                   schedule_step="update", max_global_step=600)  # fmt: skip
    rng = np.random.default_rng(0)
    for i in range(600):
        reward = torch.tensor(rng.exponential(size=256), dtype=torch.float32)
        learner.optimize(i, make_batch(i, rows=256)._replace(reward=reward, discount=torch.zeros(256)))
    found = learner.model.quantiles(make_batch(0, rows=256).obs).mean((0, 1))
    expected = -np.log(1 - (np.arange(4) + 0.5) / 4)
    np.testing.assert_allclose(found.detach(), expected, atol=0.15)


def test_a_restored_learner_goes_on_bit_for_bit(make_batch: MakeBatch, tmp_path: Path) -> None:
    assert_goes_on_bit_for_bit(made, [make_batch(seed, weight=0.5) for seed in range(10)], tmp_path)


def test_another_model_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="the model is a QFunction; it must be a QuantileQFunction"):
        QuantileDQNLearner(QFunction(action_space=2))


@pytest.mark.parametrize("dueling", [False, True])
def test_rainbow_learns_quantiles_by_noisy_networks_of_their_own(make_batch: MakeBatch, dueling: bool) -> None:
    model = NoisyQuantileQFunction((8,), action_space=2, num_quantiles=5, dueling=dueling, seed=0)
    assert isinstance(model, NoisyQFunction)
    learner = QuantileDQNLearner(model, None)
    batch = make_batch(weight=0.5)
    learner.optimize(0, batch)
    assert model.quantiles(batch.obs).shape == (16, 2, 5)
    noisy, frozen = learner.estimate(batch)
    model.clear_noise()
    assert (model.quantiles(batch.obs)[range(16), batch.action] != noisy).all()
    learner.target.network.clear_noise()
    assert (learner.estimate(batch)[1] != frozen).any()
    assert not {name for name, tensor in model.named_parameters() if tensor.grad is None}


def test_a_restored_rainbow_goes_on_bit_for_bit(make_batch: MakeBatch, tmp_path: Path) -> None:
    def rainbow() -> QuantileDQNLearner:
        model = NoisyQuantileQFunction((8,), action_space=2, num_quantiles=5, dueling=True, seed=0)
        return QuantileDQNLearner(model, None, seed=3)

    assert_goes_on_bit_for_bit(rainbow, [make_batch(seed, weight=0.5) for seed in range(10)], tmp_path)
