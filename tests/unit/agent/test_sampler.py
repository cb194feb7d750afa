"""Samples of a policy, and those of a normal one that follow one another in a correlated way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.agent.sampler import Sampler
from surreal.model import SquashedNormal
from surreal.model.distributions import Categorical, Normal
from surreal.model.off_policy.action_range import ActionRange

ROWS = 4000
CPU = torch.device("cpu")


def noises(correlation: float, *, steps: int = 3, first: int | None = None) -> np.ndarray:
    """Deviations from the mean in sigmas, [steps, ROWS], with an episode that begins in step `first` as well."""
    sampler = Sampler(np.random.default_rng(0), noise_correlation=correlation)
    policy = Normal(torch.full((ROWS, 1), 3.0), torch.full((1,), np.log(2.0)))
    found = []
    for step in range(steps):
        is_first = np.full(ROWS, step in (0, first))
        action = sampler.choose(policy, np.ones(ROWS, np.bool_), CPU, np.arange(ROWS), is_first)
        found.append((action[:, 0].numpy() - 3.0) / 2.0)
    return np.stack(found)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_each_sample_is_distributed_as_the_policy_says(correlation: float) -> None:
    for noise in noises(correlation):
        assert abs(noise.mean()) < 0.06
        assert abs(noise.std() - 1.0) < 0.05


def test_samples_that_follow_one_another_are_correlated_within_an_episode_only() -> None:
    for correlation in (0.0, 0.7):
        first, second, third = noises(correlation)
        assert abs(np.corrcoef(first, second)[0, 1] - correlation) < 0.06
        assert abs(np.corrcoef(first, third)[0, 1] - correlation**2) < 0.06
    _, second, third = noises(0.7, first=2)
    assert abs(np.corrcoef(second, third)[0, 1]) < 0.06


def test_each_slot_has_noise_of_its_own() -> None:
    sampler = Sampler(np.random.default_rng(0), noise_correlation=0.999)
    policy = Normal(torch.zeros(2, 1), torch.zeros(1))
    yes, no = np.ones(2, np.bool_), np.zeros(2, np.bool_)
    before = sampler.choose(policy, yes, CPU, np.array([0, 1]), yes)
    after = sampler.choose(policy, yes, CPU, np.array([1, 0]), no)
    torch.testing.assert_close(after, before.flip(0), rtol=0.0, atol=0.2)


def test_what_is_no_correlation_and_what_has_no_noise_is_refused() -> None:
    with pytest.raises(ValueError, match="noise_correlation is 1"):
        Sampler(np.random.default_rng(0), noise_correlation=1.0)
    sampler = Sampler(np.random.default_rng(0), noise_correlation=0.5)
    yes = np.ones(2, np.bool_)
    with pytest.raises(ValueError, match="Categorical and not normal"):
        sampler.choose(Categorical(torch.zeros(2, 3)), yes, CPU, np.arange(2), yes)


def held(steps: int, *, first: int | None = None, hold: int = 4) -> np.ndarray:
    """Return noise that is held, [steps, ROWS], before tanh, in standard deviations."""
    sampler = Sampler(np.random.default_rng(0), noise_hold_steps=hold)
    bounds = ActionRange(spaces.Box(-2.0, 2.0, (1,)))
    policy = SquashedNormal(torch.zeros(ROWS, 1), torch.full((1,), np.log(0.2)), bounds)
    found = []
    for step in range(steps):
        is_first = np.full(ROWS, step in (0, first))
        action = sampler.choose(policy, np.ones(ROWS, np.bool_), CPU, np.arange(ROWS), is_first)
        found.append(np.arctanh(action[:, 0].numpy() / 2.0) / 0.2)
    return np.stack(found)


def test_held_noise_is_normal_and_lasts_as_long_as_the_zeta_distribution_says() -> None:
    noise = held(40)
    assert abs(noise[-1].mean()) < 0.06
    assert abs(noise[-1].std() - 1.0) < 0.05
    lengths: list[int] = []
    for row in noise.T:
        changes = np.flatnonzero(np.diff(row)) + 1
        lengths += list(np.diff([0, *changes]))[:5]  # of runs that the end does not cut
    shares = np.bincount(lengths, minlength=5)[1:] / len(lengths)
    weights = np.array([1.0, 1.0 / 4.0, 1.0 / 9.0, 1.0 / 16.0])
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.015)


def test_an_episode_begins_with_new_noise() -> None:
    assert (held(2)[0] == held(2)[1]).mean() > 0.2
    assert not (held(2, first=1)[0] == held(2, first=1)[1]).any()


def test_noise_that_cannot_be_held_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of them"):
        Sampler(np.random.default_rng(0), noise_correlation=0.5, noise_hold_steps=2)
    yes = np.ones(2, np.bool_)
    with pytest.raises(ValueError, match="noise_hold_steps is set, but the policy is a Categorical"):
        Sampler(np.random.default_rng(0), noise_hold_steps=2).choose(
            Categorical(torch.zeros(2, 3)), yes, CPU, np.arange(2), yes
        )
