"""A client that keeps time, with a real server whose agent stops, or that is gone."""

from __future__ import annotations

from typing import Any

import numpy as np

from surreal.base.types import StepKind
from surreal.rlx import AgentProxy
from surreal.rlx.client.transport import parse_address

RATE_HZ = 20.0


def play(served: Any, agent: AgentProxy, until: Any) -> list[Any]:
    """Ask for actions at positive states, whose action is 1, until a condition holds; returns them."""
    actions: list[Any] = []

    def is_done() -> bool:
        actions.append(agent.update(1.0, np.array([1.0, 0.0], np.float32)))
        return bool(until(actions[-1]))

    served.wait(is_done)
    return actions


def test_while_the_agent_or_the_server_is_gone_the_safe_action_is_taken(harness: Any) -> None:
    served, other = harness(), harness()
    with AgentProxy(f"127.0.0.1:{served.port}", rate_hz=RATE_HZ, safe_action=-1) as agent:
        agent.connect()
        agent.init()
        assert agent.timing is not None
        agent.update(None, np.array([1.0, 0.0], np.float32))
        play(served, agent, lambda action: action == 1)

        served.may_act.clear()
        play(served, agent, lambda action: action == -1)
        assert [agent.update(1.0, np.array([1.0, 0.0], np.float32)) for _ in range(5)] == [-1] * 5
        known = len(served.rows)
        served.may_act.set()
        play(served, agent, lambda action: action == 1)
        assert [int(row.kind) for row in served.rows[known : known + 1]] == [StepKind.FIRST]

        served.server.close()
        play(served, agent, lambda action: action == -1)
        assert agent.timing.failure is not None
        agent.address = parse_address(f"127.0.0.1:{other.port}")
        play(other, agent, lambda action: action == 1)
        assert agent.timing.failure is None
        assert other.rows[0].kind == StepKind.FIRST
