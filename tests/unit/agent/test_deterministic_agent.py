"""The deterministic agent: its noise, its bounds, and when it explores at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.agent import DeterministicAgent
from surreal.base.schedules import PerEnvSchedule
from surreal.base.specs import ObsSpec
from surreal.model import DeterministicActorCritic

OBS = ObsSpec.from_obs(np.zeros(3, np.float32))
BOX = spaces.Box(np.array([-1, 0], np.float32), np.array([3, 20], np.float32))
HALF = np.array([2, 10])


def made(exploration: Any = 0.05, seed: int = 0, **options: Any) -> DeterministicAgent:
    model = DeterministicActorCritic([8], action_space=BOX, obs_spec=OBS, seed=0)
    return DeterministicAgent(model, exploration, action_space=BOX, rng=np.random.default_rng(seed), **options)


def act(agent: DeterministicAgent, rows: int = 400, explore: Any = True, first: Any = False) -> NDArray[np.float32]:
    action = agent.act_batch(
        np.zeros((rows, 3), np.float32),
        np.broadcast_to(explore, rows),
        np.arange(rows),
        np.array(np.broadcast_to(first, rows)),
    )
    return action.actions


GREEDY = act(made(), explore=False)


def noise_of(actions: NDArray[np.float32]) -> NDArray[np.float64]:
    return (actions - GREEDY[: len(actions)]) / HALF


def test_without_exploring_the_action_is_the_actors() -> None:
    model = DeterministicActorCritic([8], action_space=BOX, obs_spec=OBS, seed=0)
    np.testing.assert_array_equal(GREEDY, model(torch.zeros(400, 3)).detach().numpy())


def test_gaussian_noise_is_relative_to_each_components_range() -> None:
    noise = noise_of(act(made(0.05)))
    # 400 draws: a standard error of 3.5 % of sigma; 5 of them.
    np.testing.assert_allclose(noise.std(0), 0.05, rtol=0.18)
    np.testing.assert_allclose(noise.mean(0), 0.0, atol=0.0125)


def test_actions_with_much_noise_stay_within_the_bounds_and_reach_them() -> None:
    actions = act(made(5.0))
    np.testing.assert_array_equal(actions.min(0), BOX.low)
    np.testing.assert_array_equal(actions.max(0), BOX.high)


@pytest.mark.parametrize("options", [{}, {"noise": "ornstein_uhlenbeck"}, {"random_steps": 10**9}])
def test_evaluation_and_rows_that_may_not_explore_are_greedy(options: dict[str, Any]) -> None:
    agent = made(0.3, **options)
    explore = np.arange(400) % 2 == 0
    actions = act(agent, explore=explore)
    np.testing.assert_array_equal(actions[~explore], GREEDY[~explore])
    assert (actions[explore] != GREEDY[explore]).any(1).all()
    agent.set_mode("eval")
    np.testing.assert_array_equal(act(agent), GREEDY)
    np.testing.assert_array_equal(act(made(None, **options)), GREEDY)


def test_ornstein_uhlenbeck_noise_follows_its_recursion_by_slot_and_begins_anew_with_an_episode() -> None:
    agent = made(0.02, noise="ornstein_uhlenbeck", noise_theta=0.25)
    noises = np.array([noise_of(act(agent, first=(t == 0))) for t in range(200)])
    steps = noises[1:] - 0.75 * noises[:-1]
    # The steps are white noise of sigma; the sum's spread is sigma / sqrt(2 theta - theta^2).
    np.testing.assert_allclose(steps.std(), 0.02, rtol=0.02)
    np.testing.assert_allclose(noises[50:].std(), 0.02 / np.sqrt(0.5 - 0.0625), rtol=0.05)
    assert abs((steps[1:] * steps[:-1]).mean()) < 0.02 * 0.02**2
    first = np.arange(400) < 200
    following = noise_of(act(agent, first=first))
    correlation = [np.corrcoef(following[rows].ravel(), noises[-1][rows].ravel())[0, 1] for rows in (first, ~first)]
    assert abs(correlation[0]) < 0.25  # 400 pairs: 5 standard errors
    assert correlation[1] > 0.6  # 0.75 in expectation


def test_slots_are_not_rows() -> None:
    agent = made(0.02, noise="ornstein_uhlenbeck", noise_theta=0.001)
    obs, explore = np.zeros((2, 3), np.float32), np.ones(2, np.bool_)

    def noise(slots: list[int], first: bool) -> NDArray[np.float64]:
        return noise_of(agent.act_batch(obs, explore, np.array(slots), np.full(2, first)).actions)

    for _ in range(100):
        before = noise([0, 1], False)
    swapped = noise([1, 0], False)
    assert np.abs(swapped[::-1] - before).max() < 0.1 < np.abs(swapped - before).max()


def test_first_env_steps_of_the_run_are_uniformly_random() -> None:
    agent = made(0.01, random_steps=1000)
    agent.global_step = 999
    scaled = (act(agent) - BOX.low) / (BOX.high - BOX.low)
    np.testing.assert_allclose(scaled.mean(0), 0.5, atol=0.08)
    np.testing.assert_allclose(scaled.std(0), 1 / np.sqrt(12), rtol=0.1)
    agent.global_step = 1000
    assert np.abs(noise_of(act(agent))).max() < 0.06


def test_each_environment_may_have_its_own_noise() -> None:
    agent = made(PerEnvSchedule([0.0, 0.1]))
    noise = noise_of(act(agent))
    np.testing.assert_allclose(noise[::2], 0.0, atol=1e-6)
    assert noise[1::2].std() > 0.08
    assert agent.metrics() == {"agent/noise_sigma": pytest.approx(0.05)}


def test_a_seed_repeats_its_noise() -> None:
    np.testing.assert_array_equal(act(made(seed=1)), act(made(seed=1)))
    assert (act(made(seed=1)) != act(made(seed=2))).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "pink"}, "noise is 'pink'"),
        ({"noise": "ornstein_uhlenbeck", "noise_theta": 0.0}, "noise_theta is 0.0"),
        ({"random_steps": -1}, "random_steps is -1"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)
