"""Noise that depends on the state (gSDE): its distribution against naive sums, and the matrices that agents keep."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.agent import SamplingAgent
from surreal.agent.sampler import Sampler
from surreal.base.specs import ObsSpec
from surreal.model import SoftActorCritic
from surreal.model.distributions import Normal
from surreal.model.off_policy.action_range import ActionRange, StateDependentNormal

BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 10], np.float32))
OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
CPU = torch.device("cpu")


def policy_of(rows: int = 3, seed: int = 0) -> StateDependentNormal:
    generator = torch.Generator().manual_seed(seed)
    mean, features, log_sigma = (torch.randn(shape, generator=generator) for shape in ((rows, 2), (rows, 5), (5, 2)))
    return StateDependentNormal(0.3 * mean, features, 0.3 * log_sigma - 1.5, ActionRange(BOX))


def test_log_probability_is_that_of_a_normal_with_the_variance_of_a_sum() -> None:
    policy = policy_of()
    action, log_probability = policy.draw(torch.Generator().manual_seed(1))
    expected = []
    for row in range(3):
        total = 0.0
        for component, (low, high) in enumerate([(-1.0, 3.0), (0.0, 10.0)]):
            variance = 1e-6
            for feature in range(5):
                sigma = math.exp(policy.log_sigma[feature, component].item())
                variance += (policy.features[row, feature].item() * sigma) ** 2
            half = (high - low) / 2.0
            scaled = (action[row, component].item() - low) / half - 1.0
            error = math.atanh(scaled) - policy.normal.mean[row, component].item()
            total += -0.5 * error**2 / variance - 0.5 * math.log(2.0 * math.pi * variance)
            total -= math.log(half * (1.0 - scaled**2))
        expected.append(total)
    torch.testing.assert_close(log_probability, torch.tensor(expected), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(policy.log_probability(action), torch.tensor(expected), rtol=1e-3, atol=1e-3)


def test_an_action_is_the_mean_plus_the_matrix_times_the_features() -> None:
    policy, matrices = policy_of(), torch.randn(3, 5, 2)
    found = policy.at(policy.noise(matrices))
    for row in range(3):
        noise = sum(
            policy.features[row, feature] * matrices[row, feature] * policy.log_sigma[feature].exp()
            for feature in range(5)
        )
        expected = policy.bounds.to_env((policy.normal.mean[row] + noise).tanh())
        torch.testing.assert_close(found[row], expected)
    torch.testing.assert_close(policy[1:].noise(matrices[1:]), policy.noise(matrices)[1:])


def test_noise_of_many_matrices_has_a_standard_deviation_of_1() -> None:
    policy = policy_of(rows=1)
    matrices = torch.randn(20_000, 5, 2, generator=torch.Generator().manual_seed(0))
    many = StateDependentNormal(
        policy.normal.mean.expand(20_000, 2), policy.features.expand(20_000, 5), policy.log_sigma, policy.bounds
    ).noise(matrices)
    torch.testing.assert_close(many.std(0), torch.ones(2), atol=0.02, rtol=0.0)  # 0.005 is its standard error


def kept(steps: int, matrix_steps: int | None, first: int | None = None) -> list[np.ndarray[Any, Any]]:
    """Return the actions of three slots in the same states, step by step."""
    sampler, policy = Sampler(np.random.default_rng(0), noise_matrix_steps=matrix_steps), policy_of()
    yes, found = np.ones(3, np.bool_), []
    for step in range(steps):
        is_first = np.array([step == 0, step in (0, first), step == 0])
        found.append(sampler.choose(policy, yes, CPU, np.arange(3), is_first).numpy())
    return found


def test_equal_states_get_equal_noise_until_the_matrix_is_drawn_again() -> None:
    actions = kept(7, 3)
    changes = [bool((before != after).all()) for before, after in pairwise(actions)]
    same = [bool((before == after).all()) for before, after in pairwise(actions)]
    assert changes == [False, False, True, False, False, True]
    assert same == [not each for each in changes]


def test_without_a_number_of_steps_a_matrix_lasts_for_an_episode() -> None:
    actions = kept(6, None, first=4)
    np.testing.assert_array_equal(actions[0], actions[3])
    np.testing.assert_array_equal(actions[0][[0, 2]], actions[5][[0, 2]])
    assert (actions[3][1] != actions[4][1]).all()


def test_an_agent_explores_by_it_and_acts_by_the_mean_otherwise() -> None:
    model = SoftActorCritic([8], action_space=BOX, obs_spec=OBS, seed=0, state_dependent_sigma=0.3)
    agent = SamplingAgent(model, action_space=BOX, rng=np.random.default_rng(0), noise_matrix_steps=4)
    obs = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    actions = [agent.act(obs) for _ in range(4)]
    assert all((actions[0] == each).all() for each in actions)
    agent.set_mode("eval")
    np.testing.assert_allclose(agent.act(obs), model(torch.from_numpy(obs)).mode().detach(), rtol=1e-5)
    assert not np.allclose(agent.act(obs), actions[0])


def test_steps_of_a_matrix_are_refused_without_one() -> None:
    yes = np.ones(2, np.bool_)
    policy = Normal(torch.zeros(2, 1), torch.zeros(1))
    with pytest.raises(ValueError, match="noise_matrix_steps is 4, but the policy is a Normal"):
        Sampler(np.random.default_rng(0), noise_matrix_steps=4).choose(policy, yes, CPU, np.arange(2), yes)
