"""Distributions against torch's own, and against what is counted; samples are drawn with fixed seeds."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent
from torch.distributions import Normal as TorchNormal

from surreal.model import Categorical, Normal


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_categorical_is_that_of_torch() -> None:
    logits, action = torch.randn(4, 3, 5), torch.randint(5, (4, 3))
    ours, theirs = Categorical(logits), TorchCategorical(logits=logits)
    torch.testing.assert_close(ours.log_probability(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), logits.argmax(-1))
    torch.testing.assert_close(ours[1:].log_probability(action[1:]), theirs.log_prob(action)[1:])


def test_categorical_samples_have_their_probabilities() -> None:
    probability = torch.tensor([0.1, 0.2, 0.7])
    samples = Categorical(probability.log().expand(20_000, 3)).sample(generator())
    # The standard deviation of a share of 20,000 samples is 0.0035 at most: five of them.
    torch.testing.assert_close(samples.bincount(minlength=3) / 20_000, probability, atol=0.018, rtol=0.0)


def test_illegal_actions_have_no_probability() -> None:
    mask = torch.tensor([[True, False, True], [False, True, False]])
    policy = Categorical(torch.tensor([[0.0, 9.0, 1.0], [3.0, 0.0, 5.0]])).masked(mask)
    torch.testing.assert_close(policy.logits.exp().sum(-1), torch.ones(2))
    assert policy.mode().tolist() == [2, 1]
    for _ in range(50):
        assert mask.gather(1, policy.sample(generator())[:, None]).all()
    p = torch.tensor([1.0 / (1.0 + torch.e), torch.e / (1.0 + torch.e)])
    torch.testing.assert_close(policy.entropy(), torch.stack([-(p * p.log()).sum(), torch.tensor(0.0)]))


def test_the_entropy_over_legal_actions_has_a_finite_gradient() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    Categorical(logits).masked(torch.tensor([[True, False, True]])).entropy().sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_normal_is_that_of_torch() -> None:
    mean, log_sigma, action = torch.randn(4, 3, 2), torch.randn(2), torch.randn(4, 3, 2)
    ours, theirs = Normal(mean, log_sigma), Independent(TorchNormal(mean, log_sigma.exp().expand_as(mean)), 1)
    torch.testing.assert_close(ours.log_probability(action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), mean)
    torch.testing.assert_close(ours[1:].entropy(), theirs.entropy()[1:])


def test_normal_samples_have_their_mean_and_sigma() -> None:
    samples = Normal(torch.full((20_000, 1), 3.0), torch.tensor([0.7])).sample(generator())
    sigma = torch.tensor(0.7).exp()
    # Standard errors: sigma / 141 of the mean, sigma / 200 of the deviation; five of each.
    assert abs(samples.mean() - 3.0) < 5 * sigma / 141
    assert abs(samples.std() - sigma) < 5 * sigma / 200


def test_a_mask_of_continuous_actions_is_refused() -> None:
    with pytest.raises(ValueError, match="continuous"):
        Normal(torch.zeros(1, 2), torch.zeros(2)).masked(torch.ones(1, 2, dtype=torch.bool))
