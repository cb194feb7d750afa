"""The policy agent: what it samples, what it records, and what it remembers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.agent import PolicyAgent
from surreal.base.errors import UserCodeError
from surreal.base.specs import ObsSpec
from surreal.base.types import Action
from surreal.model import ActorCritic

OBS = ObsSpec.from_obs(np.zeros(3, np.float32))


def made(seed: int = 0, **options: Any) -> PolicyAgent:
    model = ActorCritic([8], action_space=spaces.Discrete(4), obs_spec=OBS, seed=0, **options)
    return PolicyAgent(model, rng=np.random.default_rng(seed), obs_spec=OBS)


def act(agent: PolicyAgent, rows: int = 64, explore: Any = True, first: bool = False, mask: Any = None) -> Action:
    obs = np.random.default_rng(7).normal(size=(rows, 3)).astype(np.float32)
    return agent.act_batch(obs, np.broadcast_to(explore, rows), np.arange(rows), np.full(rows, first), mask)


def test_log_probability_and_value_are_those_of_the_action_taken() -> None:
    agent = made()
    action = act(agent)
    obs = torch.from_numpy(np.random.default_rng(7).normal(size=(64, 3)).astype(np.float32))
    policy, value = agent.model(obs)
    expected = policy.log_probability(torch.from_numpy(action.actions))
    np.testing.assert_allclose(action.extras["log_probability"], expected.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(action.extras["value"], value.detach(), rtol=1e-5, atol=1e-6)


def test_rows_that_do_not_explore_take_the_most_probable_action() -> None:
    greedy = act(made(), explore=False).actions
    explore = np.arange(64) % 2 == 0
    mixed = act(made(), explore=explore).actions
    assert (mixed[~explore] == greedy[~explore]).all()
    assert (mixed[explore] != greedy[explore]).any()


def test_eval_mode_is_greedy() -> None:
    agent = made()
    agent.set_mode("eval")
    assert (act(agent).actions == act(made(), explore=False).actions).all()


def test_a_seed_repeats_its_samples() -> None:
    assert (act(made(1)).actions == act(made(1)).actions).all()
    assert (act(made(1)).actions != act(made(2)).actions).any()


def test_illegal_actions_are_never_taken_and_the_recorded_probability_knows_it() -> None:
    mask = np.zeros((64, 4), dtype=np.bool_)
    mask[:, 2] = True
    action = act(made(), mask=mask)
    assert (action.actions == 2).all()
    np.testing.assert_allclose(action.extras["log_probability"], 0.0, atol=1e-6)


def test_recurrent_state_is_recorded_before_the_step_and_kept_by_slot() -> None:
    agent = made(use_lstm=True, lstm_size=5)
    first, second = act(agent, rows=2, first=True), act(agent, rows=2)
    assert first.extras["state"].shape == (2, 2, 5)
    assert not first.extras["state"].any()
    obs = torch.from_numpy(np.random.default_rng(7).normal(size=(2, 3)).astype(np.float32))
    _, after = agent.model(obs, torch.zeros(2, 2, 5))
    np.testing.assert_allclose(second.extras["state"], after.detach(), rtol=1e-5)
    assert not act(agent, rows=2, first=True).extras["state"].any()


@pytest.mark.parametrize("count", [3, 5])
def test_policy_over_another_number_of_actions_is_refused(count: int) -> None:
    agent = made()
    agent.expect_actions(spaces.Discrete(count))
    with pytest.raises(UserCodeError, match=rf"ActorCritic.forward .* over 4 actions; the environment has {count}"):
        act(agent)
