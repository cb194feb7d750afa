"""BitFlip: an episode is the number of bits that differ, and its functions judge goals of any number."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from surreal.envs.examples import BitFlip


def test_the_bits_that_differ_reach_the_goal_and_others_do_not() -> None:
    env = BitFlip(7)
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        wrong = np.flatnonzero(obs["observation"] != obs["desired_goal"])
        for left, bit in zip(range(len(wrong) - 1, -1, -1), wrong, strict=True):
            obs, reward, terminated, truncated, info = env.step(bit)
            assert (reward, terminated, info["is_success"]) == (-float(left > 0), left == 0, left == 0)
            assert not truncated
            np.testing.assert_array_equal(obs["observation"], obs["achieved_goal"])
            assert (obs["observation"] != obs["desired_goal"]).sum() == left


def test_an_episode_that_misses_its_goal_is_cut_after_a_step_for_each_bit() -> None:
    env = BitFlip(4)
    obs, _ = env.reset(seed=1)
    assert (obs["observation"] != obs["desired_goal"]).any()
    outcomes = [env.step(np.int64(0))[1:4] for _ in range(4)]
    assert outcomes == [(-1.0, False, False)] * 3 + [(-1.0, False, True)]


def test_goals_are_judged_by_row() -> None:
    env, bits = BitFlip(2), np.array([[0, 0], [0, 1], [1, 1]], np.float32)
    assert env.compute_reward(bits, bits[[0, 0, 2]], {}).tolist() == [0.0, -1.0, 0.0]
    assert env.compute_terminated(bits, bits[[0, 0, 2]], {}).tolist() == [True, False, True]


def test_gymnasium_accepts_it() -> None:
    check_env(BitFlip(3), skip_render_check=True)
    with pytest.raises(ValueError, match="n is 0; it must be >= 1"):
        BitFlip(0)
