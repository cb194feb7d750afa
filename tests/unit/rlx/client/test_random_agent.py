"""What takes the place of a server in the tests of an environment."""

from __future__ import annotations

from typing import Any

import pytest

from surreal.rlx import AgentProxyReplyError, RandomAgent, TrainingBase
from surreal.rlx.protocol.errors import RlxEncodeError


class Counting(TrainingBase):
    config_file = None

    def episode(self, number: int) -> float:
        self.agent.update(state=[1.0])
        self.agent.update(0.5, [2.0])
        self.agent.update(0.5, [3.0], truncated=number == 0, terminal=True)
        return 1.0


def test_it_counts_what_an_environment_does() -> None:
    agent = RandomAgent(2, seed=0)
    assert Counting([], agent=agent, max_episodes=3).run()
    assert (agent.steps, agent.episodes, agent.rewards) == (6, 3, [1.0, 1.0, 1.0])


def test_actions_are_drawn_or_made() -> None:
    agent = RandomAgent(3, seed=0)
    assert {agent.update(state=[]) for _ in range(50)} == {0, 1, 2}
    assert RandomAgent(lambda: "jump").update(state=[]) == "jump"
    assert agent.update(1.0, [], terminal=True) is None


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), [1.0, float("nan")]])
def test_what_a_server_refuses_is_refused(reward: Any) -> None:
    agent = RandomAgent(2)
    agent.update(state=[])
    with pytest.raises(AgentProxyReplyError, match="must be finite"):
        agent.update(reward, [])
    agent.reset()
    with pytest.raises(AgentProxyReplyError, match="no reward"):
        agent.update(1.0, [])
    with pytest.raises(RlxEncodeError):
        agent.update(state=object())
