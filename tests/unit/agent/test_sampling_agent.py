"""The sampling agent: when it samples, when not, and what it does at the start of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.agent import SamplingAgent
from surreal.base.specs import ObsSpec
from surreal.model import DiscreteSoftActorCritic, SoftActorCritic
from surreal.model.in_numpy.forward import NumpyPass

OBS = ObsSpec.from_obs(np.zeros(3, np.float32))
BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 20], np.float32))
DISCRETE = spaces.Discrete(4)


def made(space: Any = BOX, seed: int = 0, **options: Any) -> SamplingAgent:
    cls = SoftActorCritic if space is BOX else DiscreteSoftActorCritic
    model = cls([8], action_space=space, obs_spec=OBS, seed=0)
    return SamplingAgent(model, action_space=space, rng=np.random.default_rng(seed), **options)


def act(agent: SamplingAgent, explore: Any = True, mask: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    rows = 400
    obs = np.random.default_rng(7).normal(size=(rows, 3)).astype(np.float32)
    action = agent.act_batch(obs, np.broadcast_to(explore, rows), np.arange(rows), np.zeros(rows, np.bool_), mask)
    assert action.extras == {}
    return action.actions


@pytest.mark.parametrize("space", [BOX, DISCRETE])
@pytest.mark.parametrize("random_steps", [0, 10**9])
def test_evaluation_and_rows_that_may_not_explore_take_the_mode(space: Any, random_steps: int) -> None:
    agent = made(space, random_steps=random_steps)
    obs = torch.from_numpy(np.random.default_rng(7).normal(size=(400, 3)).astype(np.float32))
    greedy = agent.model(obs).mode().detach().numpy()
    explore = np.arange(400) % 2 == 0
    actions = act(agent, explore)
    np.testing.assert_allclose(actions[~explore], greedy[~explore], rtol=1e-5, atol=1e-5)
    assert (np.abs(actions[explore] - greedy[explore]) > 1e-3).any()
    agent.set_mode("eval")
    np.testing.assert_allclose(act(agent), greedy, rtol=1e-5, atol=1e-5)


def test_first_env_steps_of_the_run_are_uniformly_random_and_legal() -> None:
    agent = made(random_steps=1000)
    agent.global_step = 999
    scaled = (act(agent) - BOX.low) / (BOX.high - BOX.low)
    np.testing.assert_allclose(scaled.mean(0), 0.5, atol=0.08)
    np.testing.assert_allclose(scaled.std(0), 1 / np.sqrt(12), rtol=0.1)
    agent.global_step = 1000
    unhurried = made()
    act(unhurried)
    np.testing.assert_array_equal(act(agent), act(unhurried))
    mask = np.ones((400, 4), np.bool_)
    mask[:, 2] = False
    chosen = np.bincount(act(made(DISCRETE, random_steps=1000), mask=mask), minlength=4)
    assert chosen[2] == 0
    assert (chosen[[0, 1, 3]] > 90).all()  # 133 expected: 5 standard errors
    assert act(made(DISCRETE), mask=mask).tolist().count(2) == 0


def test_a_seed_repeats_its_samples() -> None:
    np.testing.assert_array_equal(act(made(seed=1)), act(made(seed=1)))
    assert (act(made(seed=1)) != act(made(seed=2))).any()


def test_sample_mode_draws_every_action_and_neither_counts_nor_takes_random_ones() -> None:
    agent, training = made(random_steps=10**9), made()
    agent.set_mode("sample")
    np.testing.assert_array_equal(act(agent, explore=False), act(training))
    assert agent.steps == 0


def test_held_noise_is_the_same_in_numpy_and_in_torch() -> None:
    found = []
    for is_numpy in (False, True):
        agent = made(noise_hold_steps=16)
        policy: object = agent.model(torch.zeros(400, 3))
        if is_numpy:
            in_numpy = NumpyPass.of(agent.model)
            assert in_numpy is not None
            policy, _ = in_numpy(np.zeros((400, 3), np.float32))
        yes, slots = np.ones(400, np.bool_), np.arange(400)
        for is_first in (yes, ~yes, ~yes):
            with torch.inference_mode():
                action = agent.sampler.choose(policy, yes, torch.device("cpu"), slots, is_first)  # type: ignore[arg-type]
        found.append(np.asarray(action))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4)
