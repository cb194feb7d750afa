"""The noisy agent: who acts with noise, and who without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from surreal.agent import NoisyQAgent
from surreal.base.specs import ObsSpec
from surreal.base.types import Action
from surreal.model import NoisyQFunction, QFunction

OBS = ObsSpec.from_obs(np.zeros(3, np.float32))
ROWS = np.random.default_rng(7).normal(size=(200, 3)).astype(np.float32)


def made(seed: int = 0, **options: Any) -> NoisyQAgent:
    model = NoisyQFunction([8], action_space=5, obs_spec=OBS, seed=0, noise_sigma=2.0, **options)
    return NoisyQAgent(model, rng=np.random.default_rng(seed), obs_spec=OBS)


def act(agent: NoisyQAgent, explore: Any = True, first: bool = False) -> Action:
    rows = len(ROWS)
    return agent.act_batch(ROWS, np.broadcast_to(explore, rows), np.arange(rows), np.full(rows, first))


def actions(agent: NoisyQAgent, explore: Any = True) -> NDArray[Any]:
    return act(agent, explore).actions


def test_each_turn_has_noise_of_its_own() -> None:
    agent = made()
    first, second = actions(agent), actions(agent)
    assert (first != second).any()
    np.testing.assert_array_equal(first, actions(made()))
    assert (first != actions(made(seed=1))).any()


def test_evaluation_and_rows_that_may_not_explore_are_greedy() -> None:
    agent = made()
    model = NoisyQFunction([8], action_space=5, obs_spec=OBS, seed=0, noise_sigma=2.0)
    greedy = model(torch.from_numpy(ROWS)).argmax(1).numpy()
    explore = np.arange(len(ROWS)) % 3 == 0
    mixed = actions(agent, explore)
    np.testing.assert_array_equal(mixed[~explore], greedy[~explore])
    assert (mixed[explore] != greedy[explore]).any()
    agent.set_mode("eval")
    np.testing.assert_array_equal(actions(agent), greedy)


def test_rows_keep_their_recurrent_state_whoever_explores() -> None:
    agent = made(use_lstm=True, lstm_size=4)
    act(agent, first=True)
    explore = np.arange(len(ROWS)) % 3 == 0
    mixed = act(agent, explore)
    _, expected = agent.model(torch.from_numpy(ROWS), torch.zeros(len(ROWS), 2, 4))
    np.testing.assert_allclose(mixed.extras["state"], expected.detach(), rtol=1e-5)


def test_another_model_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="the model is a QFunction; it must be a NoisyQFunction"):
        NoisyQAgent(QFunction(action_space=2))
