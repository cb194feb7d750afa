"""Distributions over several discrete parts, and divergences of all kinds, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Bernoulli as TorchBernoulli
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, kl_divergence
from torch.distributions import Normal as TorchNormal

from surreal.model import Bernoulli, Categorical, Distribution, MultiCategorical, Normal

CHOICES = (2, 4)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_choices_add_up() -> None:
    logits = torch.randn(3, 5, 6)
    action = torch.stack([torch.randint(n, (3, 5)) for n in CHOICES], dim=-1)
    ours = MultiCategorical.from_logits(logits, CHOICES)
    theirs = [TorchCategorical(logits=part) for part in logits.split(list(CHOICES), -1)]
    log_prob = theirs[0].log_prob(action[..., 0]) + theirs[1].log_prob(action[..., 1])
    torch.testing.assert_close(ours.log_probability(action), log_prob)
    torch.testing.assert_close(ours.entropy(), theirs[0].entropy() + theirs[1].entropy())
    assert ours.mode()[1, 2].tolist() == [int(part[1, 2].argmax()) for part in logits.split(list(CHOICES), -1)]
    torch.testing.assert_close(ours[1:].log_probability(action[1:]), log_prob[1:])
    assert ours.sample(generator()).shape == (3, 5, 2)


def test_a_mask_forbids_values_of_each_choice() -> None:
    mask = torch.tensor([True, False, False, True, False, True]).expand(100, 6)
    samples = MultiCategorical.from_logits(torch.zeros(100, 6), CHOICES).masked(mask).sample(generator())
    assert set(samples[:, 0].tolist()) == {0}
    assert set(samples[:, 1].tolist()) == {1, 3}


def test_switches_are_those_of_torch() -> None:
    logits = torch.randn(3, 4)
    action = torch.randint(2, (3, 4)).to(torch.int8)
    ours, theirs = Bernoulli(logits), Independent(TorchBernoulli(logits=logits), 1)
    torch.testing.assert_close(ours.log_probability(action), theirs.log_prob(action.float()))
    torch.testing.assert_close(ours.entropy(), theirs.entropy())
    assert torch.equal(ours.mode(), (logits > 0).to(torch.int8))
    with pytest.raises(ValueError, match="switches"):
        ours.masked(torch.ones(3, 4, dtype=torch.bool))


def test_switches_are_sampled_with_their_probabilities() -> None:
    p = torch.tensor([0.1, 0.5, 0.8])
    samples = Bernoulli(p.logit().expand(20_000, 3)).sample(generator())
    # The standard deviation of a share of 20,000 samples is 0.0035 at most: five of them.
    torch.testing.assert_close(samples.float().mean(0), p, atol=0.018, rtol=0.0)


def test_divergences_are_those_of_torch() -> None:
    a, b, c, d = torch.randn(4, 3, 5)
    pairs: list[tuple[Distribution, Distribution, torch.Tensor]] = [
        (Categorical(a), Categorical(b), kl_divergence(TorchCategorical(logits=a), TorchCategorical(logits=b))),
        (
            Bernoulli(a),
            Bernoulli(b),
            kl_divergence(TorchBernoulli(logits=a), TorchBernoulli(logits=b)).sum(-1),
        ),
        (
            Normal(a, c),
            Normal(b, d),
            kl_divergence(TorchNormal(a, c.exp()), TorchNormal(b, d.exp())).sum(-1),
        ),
    ]
    for ours, theirs, expected in pairs:
        torch.testing.assert_close(ours.kl(theirs), expected)
        torch.testing.assert_close(ours.kl(ours), torch.zeros(3), atol=1e-6, rtol=0.0)
    first, second = (Categorical(a), Categorical(c)), (Categorical(b), Categorical(d))
    expected = first[0].kl(second[0]) + first[1].kl(second[1])
    torch.testing.assert_close(MultiCategorical(first).kl(MultiCategorical(second)), expected)


def test_the_divergence_over_legal_actions_is_finite_with_a_finite_gradient() -> None:
    mask = torch.tensor([[True, False, True]])
    logits = torch.zeros(1, 3, requires_grad=True)
    old = Categorical(torch.randn(1, 3)).masked(mask)
    divergence = old.kl(Categorical(logits).masked(mask)).sum()
    divergence.backward()
    assert divergence.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_density_integrates_to_one_and_its_entropy_is_the_integral() -> None:
    policy = Normal(torch.tensor([0.3]), torch.tensor([-0.4]))
    x = torch.linspace(-8, 8, 20_001)
    log_p = Normal(policy.mean.expand(len(x), 1), policy.log_sigma).log_probability(x[:, None])
    assert torch.trapezoid(log_p.exp(), x).item() == pytest.approx(1.0, abs=1e-4)
    assert torch.trapezoid(-log_p.exp() * log_p, x).item() == pytest.approx(policy.entropy().item(), abs=1e-4)
