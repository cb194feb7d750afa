"""Tests of the environment, without a run: `pytest` in the app's folder."""

from __future__ import annotations

from training import Training

from surreal.rlx import RandomAgent


def test_an_episode_is_played_to_its_end() -> None:
    training = Training(["--config", "app.yaml"], infinite_run=False, max_episodes=1)
    training.agent = agent = RandomAgent(training.env.action_space.sample)
    assert training.run()
    assert agent.steps > 0
    training.env.close()
