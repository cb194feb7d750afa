"""TRPO: the solver against a dense one, and what a step promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from surreal.learner import TRPOLearner
from surreal.learner.on_policy.conjugate_gradient import conjugate_gradient
from surreal.learner.on_policy.evaluating import make_targets
from surreal.learner.on_policy.minibatches import minibatches

if TYPE_CHECKING:
    from tests.unit.learner.on_policy.conftest import MakeModel, Play


def test_conjugate_gradients_find_what_a_dense_solver_finds() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(12, 12, generator=generator)
    matrix, right = root @ root.T + torch.eye(12), torch.randn(12, generator=generator)
    found = conjugate_gradient(lambda vector: matrix @ vector, right, iterations=40)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=1e-3, atol=1e-4)
    assert not conjugate_gradient(lambda vector: matrix @ vector, torch.zeros(12), iterations=5).any()


@pytest.mark.parametrize("max_kl", [1e-3, 0.02])
@pytest.mark.parametrize("recurrent", [False, True])
def test_a_step_improves_the_surrogate_and_stays_in_the_trust_region(
    recurrent: bool, max_kl: float, make_model: MakeModel, play: Play
) -> None:
    model = make_model(value_hiddens=[8], use_lstm=recurrent, lstm_size=4)
    learner = TRPOLearner(model, max_kl=max_kl, damping=0.01)
    learner.optimize(0, play(model))
    for seed in range(1, 4):
        batch = play(model, seed=seed)
        targets = make_targets(model, batch, gae_lambda=0.98, normalize_advantage=True)
        (part,) = minibatches(batch, None, whole=recurrent, rng=np.random.default_rng(0))
        before, _ = learner.surrogate(part, targets)
        moved = learner.move_policy(part, targets)
        after, kl = learner.surrogate(part, targets)
        assert after < before
        assert 0.2 * max_kl < float(kl.detach()) <= max_kl
        assert moved.fraction > 0.0
        assert moved.kl == pytest.approx(float(kl.detach()), rel=1e-3)


def test_a_policy_without_a_better_step_stays_where_it_is(make_model: MakeModel, play: Play) -> None:
    model = make_model(value_hiddens=[8])
    learner = TRPOLearner(model)
    batch = play(model)
    learner.optimize(0, batch)
    before = {key: tensor.clone() for key, tensor in model.tensors().items()}
    targets = make_targets(model, batch, gae_lambda=0.98, normalize_advantage=True)
    (part,) = minibatches(batch, None, whole=False, rng=np.random.default_rng(0))
    assert learner.move_policy(part, targets._replace(advantage=torch.zeros_like(batch.mask))).fraction == 0.0
    for key, tensor in model.tensors().items():
        assert torch.equal(tensor, before[key])


def test_a_value_that_shares_the_policys_network_is_refused(make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match="value_hidden_sizes"):
        TRPOLearner(make_model())
