"""The loss formulas against deliberately naive loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from surreal.learner.losses import chosen_q, huber_loss


def naive_huber(prediction: np.ndarray, target: np.ndarray, delta: float, weight: np.ndarray) -> float:
    total = 0.0
    for row in range(len(prediction)):
        error = abs(target[row] - prediction[row])
        loss = 0.5 * error * error if error <= delta else delta * (error - 0.5 * delta)
        total += weight[row] * loss
    return total / len(prediction)


@pytest.mark.parametrize("delta", [0.5, 1.0, 3.0])
def test_huber_loss_is_the_formula_with_and_without_weights(delta: float) -> None:
    rng = np.random.default_rng(0)
    prediction, target = 3.0 * rng.normal(size=(2, 50)).astype(np.float32)
    weight = rng.random(50, dtype=np.float32)
    plain = huber_loss(torch.tensor(prediction), torch.tensor(target), delta)
    weighted = huber_loss(torch.tensor(prediction), torch.tensor(target), delta, torch.tensor(weight))
    assert plain.item() == pytest.approx(naive_huber(prediction, target, delta, np.ones(50)), rel=1e-5)
    assert weighted.item() == pytest.approx(naive_huber(prediction, target, delta, weight), rel=1e-5)


@pytest.mark.parametrize("error", [0.1, 100.0])
def test_importance_weights_scale_both_branches(error: float) -> None:
    prediction = torch.zeros(1, requires_grad=True)
    target = torch.full((1,), error)
    (whole,) = torch.autograd.grad(huber_loss(prediction, target), prediction)
    (part,) = torch.autograd.grad(huber_loss(prediction, target, weight=torch.tensor([0.25])), prediction)
    assert part.item() == pytest.approx(0.25 * whole.item())


def test_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ValueError, match=r"target has shape \(4, 1\); it must have 1"):
        huber_loss(torch.zeros(4), torch.zeros(4, 1))
    with pytest.raises(ValueError, match="weight has shape"):
        huber_loss(torch.zeros(4), torch.zeros(4), weight=torch.zeros(4, 1))
    with pytest.raises(ValueError, match="action has shape"):
        chosen_q(torch.zeros(4, 2), torch.zeros(4, 1, dtype=torch.int64))


def test_chosen_q_picks_the_column_of_each_action() -> None:
    q = torch.arange(12.0).reshape(4, 3)
    assert chosen_q(q, torch.tensor([2, 0, 1, 1])).tolist() == [2.0, 3.0, 7.0, 10.0]
