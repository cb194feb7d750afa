"""The epsilon-greedy agent: how often it explores, and when it never does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surreal.agent import EpsilonGreedy, QAgent
from surreal.agent.q_agent import Exploration
from surreal.base.pytorch import Module
from surreal.base.schedules import LinearSchedule, PerEnvSchedule
from surreal.config import load_config
from surreal.model import QFunction
from surreal.run.build.acting import build_agent, build_model
from surreal.run.build.environments import build_spaces

BEST = 2


class FixedQ(Module):
    """Action 2 of 4 is always the best, action 1 the second."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tensor([0.0, 0.5, 1.0, -1.0]).expand(len(obs), 4).clone()


def make(exploration: float | Exploration | None, seed: int = 0) -> QAgent:
    return QAgent(FixedQ(), exploration, rng=np.random.default_rng(seed))


def act(agent: QAgent, count: int, explore: Any = None, mask: Any = None, env_ids: Any = None) -> np.ndarray:
    rows = np.ones(count, bool) if explore is None else explore
    ids = np.arange(count) if env_ids is None else env_ids
    return agent.act_batch(np.zeros((count, 3), np.float32), rows, ids, np.zeros(count, bool), mask).actions


def test_epsilon_is_how_often_a_uniform_action_replaces_the_best() -> None:
    agent = make(0.4)
    actions = np.concatenate([act(agent, 50) for _ in range(400)])
    # 20,000 draws: a frequency's standard deviation is below 0.0035; five of them are tolerated.
    frequencies = np.bincount(actions, minlength=4) / len(actions)
    np.testing.assert_allclose(frequencies, [0.1, 0.1, 0.7, 0.1], atol=0.0175)


def test_rows_and_steps_explore_independently() -> None:
    agent = make(0.5)
    explored = np.array([act(agent, 16) for _ in range(2000)]) != BEST
    # Correlations of 2,000 independent pairs: standard deviation 0.022; six of them are tolerated over 120 pairs.
    rows = np.corrcoef(explored.T) - np.eye(16)
    assert np.abs(rows).max() < 0.135
    assert abs(np.corrcoef(explored[1:].ravel(), explored[:-1].ravel())[0, 1]) < 0.04


def test_eval_mode_never_explores() -> None:
    agent = make(1.0)
    agent.set_mode("eval")
    assert all((act(agent, 50) == BEST).all() for _ in range(20))
    assert agent.act(np.zeros(3)) == BEST
    assert agent.metrics() == {"agent/epsilon": 0.0}


def test_rows_that_may_not_explore_never_do() -> None:
    agent = make(1.0)
    explore = np.arange(50) % 2 == 0
    actions = np.array([act(agent, 50, explore) for _ in range(50)])
    assert (actions[:, ~explore] == BEST).all()
    assert (actions[:, explore] != BEST).any(axis=0).all()


def test_without_exploration_it_is_greedy_in_training_too() -> None:
    assert (act(make(None), 100) == BEST).all()
    assert (act(make(0.0), 100) == BEST).all()


def test_an_agent_without_a_setting_explores_less_and_less() -> None:
    agent = QAgent(FixedQ(), rng=np.random.default_rng(0))
    assert agent.metrics() == {"agent/epsilon": 1.0}
    agent.global_step = 20_000
    assert agent.metrics() == {"agent/epsilon": 0.05}


def test_a_file_with_only_an_environment_explores(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("env: {id: CartPole-v1}\n")
    config = load_config(tmp_path / "small.yaml")
    spaces = build_spaces(config)
    agent = build_agent(config, build_model(config, spaces), spaces, index=0, rng=np.random.default_rng(0))
    assert agent.metrics()["agent/epsilon"] == 1.0


def test_the_same_seed_gives_the_same_actions() -> None:
    first, second = (np.concatenate([act(agent, 16) for _ in range(300)]) for agent in (make(0.5, 3), make(0.5, 3)))
    np.testing.assert_array_equal(first, second)


def test_epsilon_follows_the_agents_steps_and_then_the_global_step() -> None:
    agent = make(LinearSchedule(1.0, 0.0, steps=100))
    act(agent, 50)
    assert agent.metrics()["agent/epsilon"] == pytest.approx(0.5)
    agent.global_step = 0
    assert agent.metrics()["agent/epsilon"] == 1.0
    agent.global_step = 100
    assert (act(agent, 1000) == BEST).all()


def test_each_environment_explores_at_its_own_rate() -> None:
    agent = make(PerEnvSchedule([0.0, 1.0]))
    actions = np.concatenate([act(agent, 2, env_ids=np.array([1, 0])).reshape(1, 2) for _ in range(200)])
    assert (actions[:, 1] == BEST).all()
    # 200 uniform actions of 4: standard deviation 0.03; five of them are tolerated.
    assert (actions[:, 0] == BEST).mean() == pytest.approx(0.25, abs=0.155)
    assert agent.metrics()["agent/epsilon"] == 0.5
    assert (act(agent, 50, env_ids=np.full(50, 2)) == BEST).all()


def test_illegal_actions_are_never_taken() -> None:
    mask = np.tile([True, True, False, True], (60, 1))
    greedy = act(make(None), 60, mask=mask)
    assert (greedy == 1).all()
    agent = make(1.0)
    actions = np.concatenate([act(agent, 60, mask=mask) for _ in range(100)])
    # 6,000 draws: standard deviation 0.006; five of them are tolerated.
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / len(actions), [1 / 3, 1 / 3, 0, 1 / 3], atol=0.031)


def test_batches_larger_than_a_block_of_draws() -> None:
    chooser = EpsilonGreedy(3, np.random.default_rng(0))
    for count in (5, 5000, 1, 4096, 4097):
        chosen = chooser.choose(np.full(count, 2), 1.0, np.ones(count, bool))
        assert len(chosen) == count
        assert set(chosen.tolist()) <= {0, 1, 2}
    with pytest.raises(ValueError, match="must be >= 1"):
        EpsilonGreedy(0, np.random.default_rng(0))


def test_the_seeds_skeleton_acts() -> None:
    q_model = QFunction(hiddens=[64, 32], action_space=6)
    q_agent = QAgent(q_model, LinearSchedule(1.0, 0.1, 1000))
    q_agent.set_mode("training")
    action = q_agent.act(np.zeros((84, 84, 3), dtype=np.uint8))
    assert type(action) is int
    assert 0 <= action < 6
    q_agent.set_mode("eval")
    obs = np.random.default_rng(0).integers(0, 256, (5, 84, 84, 3), dtype=np.uint8)
    with torch.inference_mode():
        expected = q_model(torch.from_numpy(obs)).argmax(dim=1).numpy()
    np.testing.assert_array_equal(q_agent.act(obs), expected)
    assert q_agent.act(obs[3]) == expected[3]


def test_act_takes_the_mask_of_one_observation_or_of_a_batch() -> None:
    agent = make(None)
    assert agent.act(np.zeros(3), np.array([1, 1, 0, 1], np.int8)) == 1
    mask = np.array([[1, 1, 1, 1], [1, 0, 0, 1]], np.int8)
    assert agent.act(np.zeros((2, 3)), mask).tolist() == [2, 0]
