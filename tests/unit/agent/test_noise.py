"""Noise on an actor's parameters: it adapts, lasts for an episode, and follows the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.agent import DeterministicAgent, noise
from surreal.agent.noise import ParameterNoise
from surreal.base.specs import ObsSpec
from surreal.model import DeterministicActorCritic, QFunction

OBS = ObsSpec.from_obs(np.zeros(3, np.float32))
BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 20], np.float32))
HALF = np.array([2, 10])
ROWS = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)


def made(exploration: float = 0.2) -> DeterministicAgent:
    model = DeterministicActorCritic([16], action_space=BOX, obs_spec=OBS, seed=0, layer_norm=True)
    rng = np.random.default_rng(0)
    return DeterministicAgent(model, exploration, action_space=BOX, noise="parameter", rng=rng, obs_spec=OBS)


def act(agent: DeterministicAgent, *, first: bool = False, explore: Any = True) -> NDArray[np.float32]:
    rows = len(ROWS)
    return agent.act_batch(ROWS, np.broadcast_to(explore, rows), np.arange(rows), np.full(rows, first)).actions


def test_noise_stays_for_an_episode_and_is_drawn_anew_with_the_next() -> None:
    agent = made()
    first, second = act(agent, first=True), act(agent)
    np.testing.assert_array_equal(first, second)
    assert (act(agent, first=True) != second).any()


def test_a_plain_loop_redraws_noise_when_it_resets_the_agent() -> None:
    agent = made()
    first, second = agent.act(ROWS[0]), agent.act(ROWS[0])
    np.testing.assert_array_equal(first, second)
    agent.reset()
    assert (agent.act(ROWS[0]) != second).any()


@pytest.mark.slow
def test_noise_adapts_until_actions_differ_as_much_as_they_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "_TURNS", 10)
    agent = made(exploration=0.2)
    greedy = act(agent, explore=False)
    distances = []
    for _ in range(200 * 10):
        distances.append(np.square((act(agent, first=True) - greedy) / HALF).mean())
    # The noise goes up and down by 1 % at the end; a mean of 10 turns differs by more.
    assert np.sqrt(np.mean(distances[-600:])) == pytest.approx(0.2, rel=0.1)


def test_noise_lies_on_the_newest_parameters_and_not_on_the_model() -> None:
    agent = made()
    act(agent, first=True)
    before = {name: tensor.clone() for name, tensor in agent.model.tensors().items()}
    noisy = act(agent)
    assert all(torch.equal(tensor, before[name]) for name, tensor in agent.model.tensors().items())
    agent.model.load_tensors({name: torch.zeros_like(tensor) for name, tensor in before.items()}, version=7)
    assert (act(agent) != noisy).any()


def test_layer_norms_are_left_alone() -> None:
    agent = made()
    act(agent, first=True)
    noise = agent._noise
    assert isinstance(noise, ParameterNoise)
    perturbed = dict(noise._actor.named_parameters())
    same = {name for name, tensor in agent.model.actor.named_parameters() if torch.equal(tensor, perturbed[name])}
    assert same == {name for name in perturbed if "norms" in name}


def test_evaluation_and_rows_that_may_not_explore_are_greedy() -> None:
    agent = made()
    greedy = act(made(), explore=False)
    explore = np.arange(len(ROWS)) % 2 == 0
    actions = act(agent, first=True, explore=explore)
    # 16 rows may be multiplied by another routine than 32.
    np.testing.assert_allclose(actions[~explore], greedy[~explore], rtol=1e-5)
    assert np.abs(actions[explore] - greedy[explore]).max() > 0.01
    agent.set_mode("eval")
    np.testing.assert_array_equal(act(agent), greedy)


def test_another_model_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="needs a DeterministicActorCritic, not a QFunction"):
        DeterministicAgent(QFunction(action_space=2), action_space=BOX, noise="parameter")
