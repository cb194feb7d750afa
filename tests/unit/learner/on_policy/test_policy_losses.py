"""Losses of policies and values against naive loops over the steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from surreal.learner.on_policy.policy_losses import (
    clipped_policy_loss,
    clipped_value_loss,
    explained_variance,
    importance_policy_loss,
    mean_of_steps,
    normalise,
    policy_gradient_loss,
    value_loss,
)

RNG = np.random.default_rng(0)
A, B, C = (torch.tensor(RNG.normal(size=(5, 3)), dtype=torch.float32) for _ in range(3))
MASK = torch.tensor(RNG.random((5, 3)) < 0.7, dtype=torch.float32)
STEPS = [(t, b) for t in range(5) for b in range(3) if MASK[t, b]]


def mean(function: object) -> float:
    return sum(function(float(A[step]), float(B[step]), float(C[step])) for step in STEPS) / len(STEPS)  # type: ignore[operator]


def test_the_policy_gradient_loss_is_a_mean_over_steps() -> None:
    assert policy_gradient_loss(A, B, MASK).item() == pytest.approx(-mean(lambda a, b, c: a * b), abs=1e-6)


def test_the_clipped_loss_is_the_papers() -> None:
    def step(a: float, b: float, c: float) -> float:
        ratio = math.exp(a)
        return min(ratio * b, min(max(ratio, 0.8), 1.2) * b)

    assert clipped_policy_loss(A, B, MASK, 0.2).item() == pytest.approx(-mean(step), abs=1e-6)
    assert importance_policy_loss(A, B, MASK).item() == pytest.approx(-mean(lambda a, b, c: math.exp(a) * b), abs=1e-5)


def test_a_ratio_that_went_far_enough_has_no_gradient_and_one_that_went_the_wrong_way_has() -> None:
    log_ratio = torch.tensor([1.0, 1.0, -1.0, -1.0], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, -1.0, 1.0])
    clipped_policy_loss(log_ratio, advantage, torch.ones(4), 0.2).backward()
    assert log_ratio.grad is not None
    assert (log_ratio.grad != 0.0).tolist() == [False, True, False, True]


def test_value_losses_are_those_of_naive_loops() -> None:
    def clipped(value: float, old: float, target: float) -> float:
        near = old + min(max(value - old, -0.3), 0.3)
        return max((target - value) ** 2, (target - near) ** 2)

    assert value_loss(A, C, MASK).item() == pytest.approx(mean(lambda a, b, c: (c - a) ** 2), rel=1e-5)
    assert clipped_value_loss(A, B, C, MASK, 0.3).item() == pytest.approx(mean(clipped), rel=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: policy_gradient_loss(x, y, x),
        lambda x, y: clipped_policy_loss(x, y, x, 0.2),
        lambda x, y: importance_policy_loss(x, y, x),
        lambda x, y: value_loss(x, y, x),
        lambda x, y: clipped_value_loss(x, x, y, x, 0.2),
        mean_of_steps,
    ],
)
def test_n_against_n_1_is_refused_and_not_broadcast(loss: object) -> None:
    with pytest.raises(ValueError, match=r"one shape: .*\(4, 1\)"):
        loss(torch.zeros(4), torch.zeros(4, 1))  # type: ignore[operator]


def test_normalising_looks_at_steps_only_and_bears_a_single_one() -> None:
    found = normalise(A, MASK)
    values = np.array([float(A[step]) for step in STEPS])
    for step in STEPS:
        assert float(found[step]) == pytest.approx((float(A[step]) - values.mean()) / values.std(), abs=1e-4)
    assert not found[MASK == 0.0].any()
    assert normalise(torch.tensor([3.0]), torch.ones(1)).item() == 0.0


def test_explained_variance_of_good_useless_and_constant_values() -> None:
    assert explained_variance(A, A, MASK) == 1.0
    assert explained_variance(torch.zeros_like(A), A, MASK).item() == pytest.approx(0.0, abs=1e-6)
    assert explained_variance(torch.ones_like(A), torch.ones_like(A), MASK).isfinite()
