"""The squashed normal distribution, against numeric integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.model import SquashedNormal
from surreal.model.off_policy.action_range import ActionRange

BOUNDS = ActionRange(spaces.Box(np.array([-2.0], np.float32), np.array([5.0], np.float32)))


def made(mean: float, log_sigma: float) -> SquashedNormal:
    return SquashedNormal(torch.tensor([[mean]]), torch.tensor([[log_sigma]]), BOUNDS)


@pytest.mark.parametrize(("mean", "log_sigma"), [(0.0, 0.0), (0.7, -0.5), (-0.5, -2.0)])
def test_density_integrates_to_one_and_entropy_is_its_integral(mean: float, log_sigma: float) -> None:
    policy = made(mean, log_sigma)
    edges = torch.linspace(-2.0, 5.0, 40_001, dtype=torch.float32)
    middle, width = (edges[1:] + edges[:-1]) / 2, 7.0 / 40_000
    log_density = policy.log_probability(middle[:, None]).double()
    assert float(log_density.exp().sum() * width) == pytest.approx(1.0, abs=1e-3)
    entropy = -(log_density.exp() * log_density).sum() * width
    assert policy.entropy().item() == pytest.approx(entropy.item(), abs=2e-3)


def test_a_drawn_action_has_the_density_that_is_asked_afterwards() -> None:
    bounds = ActionRange(spaces.Box(np.array([-1, 0], np.float32), np.array([1, 4], np.float32)))
    generator = torch.Generator().manual_seed(0)
    policy = SquashedNormal(torch.randn(500, 2, generator=generator), torch.full((2,), -0.7), bounds)
    drawn = policy.draw(generator)
    torch.testing.assert_close(policy.log_probability(drawn.action), drawn.log_probability, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("mean", [-200.0, -12.0, 12.0, 200.0])
def test_far_out_everything_is_finite_and_within_bounds(mean: float) -> None:
    center = torch.full((64, 1), mean, requires_grad=True)
    log_sigma = torch.zeros(1, requires_grad=True)
    policy = SquashedNormal(center, log_sigma, BOUNDS)
    drawn = policy.draw()
    assert drawn.log_probability.isfinite().all()
    gradients = torch.autograd.grad((drawn.log_probability - drawn.action.sum(-1)).sum(), (center, log_sigma))
    assert all(gradient.isfinite().all() for gradient in gradients)
    for action in (policy.sample(), policy.mode()):
        assert (action >= -2.0).all()
        assert (action <= 5.0).all()
        assert policy.log_probability(action).isfinite().all()


def test_log_probability_of_a_saturated_draw_is_the_formula_in_double_precision() -> None:
    """1 - tanh(u)^2 is 0 in float32 from u = 9.1 on; its logarithm is not."""
    policy = made(15.0, -3.0)
    generator = torch.Generator().manual_seed(1)
    drawn = policy.draw(generator)
    noise = torch.empty(1, 1).normal_(generator=torch.Generator().manual_seed(1)).double().item()
    squashed = 15.0 + math.exp(-3.0) * noise
    log_normal = -0.5 * noise**2 + 3.0 - 0.5 * math.log(2 * math.pi)
    log_slope = math.log(3.5) + math.log(4.0) - 2.0 * squashed - 2.0 * math.log1p(math.exp(-2.0 * squashed))
    assert drawn.log_probability.item() == pytest.approx(log_normal - log_slope, rel=1e-5)


def test_samples_have_no_gradient_and_draws_have_one() -> None:
    mean = torch.zeros(4, 1, requires_grad=True)
    policy = SquashedNormal(mean, torch.zeros(1), BOUNDS)
    assert not policy.sample().requires_grad
    assert policy.draw().action.requires_grad


def test_mode_is_the_median() -> None:
    policy = SquashedNormal(torch.full((20_001, 1), 0.4), torch.zeros(1), BOUNDS)
    samples = policy.sample(torch.Generator().manual_seed(0))
    assert samples.median().item() == pytest.approx(policy.mode()[0].item(), abs=0.06)  # 3 standard errors


def test_some_of_the_steps() -> None:
    policy = SquashedNormal(torch.randn(5, 3, 1), torch.randn(1), BOUNDS)
    torch.testing.assert_close(policy[:-1].mode(), policy.mode()[:-1])


def test_there_is_nothing_to_mask() -> None:
    with pytest.raises(ValueError, match="continuous"):
        made(0.0, 0.0).masked(torch.ones(1, 1, dtype=torch.bool))
