"""Tests of the environment, without a run: `pytest` in the app's folder."""

from __future__ import annotations

import pytest
from bandit import ARMS, Bandit
from training import Training

from surreal.rlx import RandomAgent


def test_an_episode_pulls_arms_and_sums_what_they_pay(capsys: pytest.CaptureFixture[str]) -> None:
    agent = RandomAgent(len(ARMS), seed=0)
    training = Training([], agent=agent)
    assert training.run()
    assert agent.steps % 1000 == 0
    assert abs(agent.rewards[0]) <= agent.steps
    assert "arm 3" in capsys.readouterr().out


def test_the_last_arm_pays_most() -> None:
    bandit = Bandit(seed=0)
    paid = [sum(bandit.pull(arm) for _ in range(2000)) for arm in range(len(ARMS))]
    assert max(paid) == paid[-1]
