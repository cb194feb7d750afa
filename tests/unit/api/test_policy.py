"""Surreal from a program: a policy from a file acts and is scored as by the commands."""

from __future__ import annotations

import inspect
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import surreal
from surreal.base.errors import CheckpointError, ConfigError
from surreal.run.build.saved_policy import BEST_POLICY, load_policy
from surreal.run.view.play import fresh_rng, play_policy
from tests.policies import write_policy


def test_one_observation_and_a_batch_get_the_same_actions(tmp_path: Path) -> None:
    policy = surreal.load(write_policy(tmp_path / "best.safetensors", "cartpole-dqn"))
    assert policy.version == 7
    assert policy.action_space == gymnasium.spaces.Discrete(2)
    batch = np.stack([policy.observation_space.sample() for _ in range(20)]).astype(np.float32)
    batch = np.clip(batch, -2.0, 2.0)
    actions = policy.act(batch)
    assert [policy.act(row) for row in batch] == actions
    assert all(policy.action_space.contains(action) for action in actions)
    assert len(set(actions)) == 2
    illegal = np.array([True, False]) if actions[0] == 1 else np.array([False, True])
    assert policy.act(batch[0], action_mask=illegal) != actions[0]
    with pytest.raises(ValueError, match=r"first has shape \[1\]; it must be \[20\]"):
        policy.act(batch, first=np.array([True]))
    with pytest.raises(ValueError, match=r"action_mask has shape \[3\]; it must be \[2\]"):
        policy.act(batch[0], action_mask=np.array([True, False, True]))
    with pytest.raises(ValueError, match=r"shape \[2, 20, 4\]"):
        policy.act(np.stack([batch, batch]))


def test_continuous_actions_are_those_of_the_space(tmp_path: Path) -> None:
    policy = surreal.load(write_policy(tmp_path / "best.safetensors", "pendulum-sac"))
    action = policy.act(np.array([1.0, 0.0, 0.5], np.float32))
    assert action.shape == (1,)
    assert policy.action_space.contains(action)


def test_a_recurrent_policy_remembers_until_it_is_reset(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "best.safetensors", "cartpole-novel-ppo-lstm")
    policy = surreal.load(path)
    memory = policy.agent
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(3, 2)).astype(np.float32)

    def states(first: np.ndarray | None = None) -> np.ndarray:
        policy.act(obs, first=first)
        assert memory._memory is not None
        return memory._memory.take(np.arange(3), np.zeros(3, np.bool_)).numpy().copy()

    begun = states()
    gone_on = states()
    assert not np.allclose(begun, gone_on)
    policy.reset()
    np.testing.assert_array_equal(states(), begun)
    again = states(np.array([True, False, True]))  # as begun, in two of the rows
    np.testing.assert_array_equal(again[[0, 2]], begun[[0, 2]])
    np.testing.assert_array_equal(again[1], gone_on[1])


def test_episodes_are_those_that_are_played_by_the_command(tmp_path: Path) -> None:
    path = write_policy(tmp_path / "best.safetensors", "cartpole-dqn")
    policy = surreal.load(path)
    found = surreal.evaluate(policy, episodes=6, seed=5)
    assert list(found.scores) == play_policy(load_policy(path), 6, rng=fresh_rng(5))
    env = gymnasium.make("CartPole-v1")
    assert surreal.evaluate(policy, env, episodes=6, seed=5).mean_return == found.mean_return
    env.reset()  # it is the caller's still
    gymnasium.register("ShortCartPole-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=3)
    try:
        assert surreal.evaluate(policy, "ShortCartPole-v0", episodes=2, seed=5).mean_length == 3
    finally:
        del gymnasium.registry["ShortCartPole-v0"]


def test_a_runs_folder_gives_its_best_policy_else_its_newest_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither eval/best\.safetensors nor a checkpoint"):
        surreal.load(tmp_path)
    for updates in (5, 40):
        write_policy(tmp_path / "checkpoints" / f"{updates:010d}.safetensors", "cartpole-dqn", kind="learner")
    assert (
        surreal.load(tmp_path).saved.tensors.keys()
        == surreal.load(write_policy(tmp_path / "x", "cartpole-dqn")).saved.tensors.keys()
    )
    write_policy(tmp_path / BEST_POLICY, "cartpole-dqn", "model.args.hidden_sizes=[8]")
    assert surreal.load(str(tmp_path)).config.model.args["hidden_sizes"] == [8]


def test_a_wrong_setting_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"learner\.gama is not a setting \(overrides\); did you mean"):
        surreal.train("cartpole-dqn", overrides={"learner.gama": 0.9}, run_dir=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_everything_public_is_named_by_the_package() -> None:
    for name in ("train", "load", "evaluate", "Policy", "Result"):
        assert inspect.getdoc(getattr(surreal, name))
