"""The agents of one process, each on its thread: what they show of themselves, and what their end leaves alone."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from surreal.config import load_config
from surreal.run.lockstep import gradient_agent
from surreal.run.lockstep.gradient_agent import GradientAgent, GradientSession

DEADLINE_S = 20.0


class StandIn:
    """An agent that hangs in its environment until it is let go."""

    check_stop = GradientAgent._check_stop
    loop = SimpleNamespace(env_steps=0, episodes=0)
    buffer = SimpleNamespace(global_step=0)
    listener = SimpleNamespace(version=0)
    waited_s = 0.0

    def __init__(self, process: Any, _: Any, stack: ExitStack, index: int, on_episode: Any, threads: Any, __: Any):
        self._process, self._threads = process, threads
        self.is_inside, self.may_leave, self.is_closed = threading.Event(), threading.Event(), threading.Event()
        stack.callback(self.is_closed.set)

    def turn(self) -> None:
        self.check_stop()
        self.is_inside.set()
        assert self.may_leave.wait(DEADLINE_S)

    def metrics(self) -> dict[str, float]:
        return {}

    def take_readings(self) -> list[Any]:
        return []


@pytest.mark.parametrize("is_hanging", [True, False])
def test_what_a_thread_may_still_use_is_not_closed(is_hanging: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_agent, "GradientAgent", StandIn)
    monkeypatch.setattr(gradient_agent, "_JOIN_TIMEOUT_S", 0.01 if is_hanging else DEADLINE_S)
    turns: list[str] = []
    process = MagicMock(config=load_config("cartpole-a3c"), index=0, stop=threading.Event())

    def should_stop() -> bool:
        turns.append(threading.current_thread().name)
        return process.stop.is_set()

    process.should_stop = should_stop
    with ExitStack() as stack:
        session = GradientSession(process, stack)
        agents: list[Any] = session._agents

        def stop() -> None:
            assert all(agent.is_inside.wait(DEADLINE_S) for agent in agents)
            if not is_hanging:
                for agent in agents:
                    agent.may_leave.set()
            process.stop.set()

        helper = threading.Thread(target=stop)
        helper.start()
        session.run()
        helper.join()
    assert all(agent.is_closed.is_set() != is_hanging for agent in agents)
    assert set(turns) == {threading.current_thread().name}, "agents' threads do not show turns of the main loop"
    for agent in agents:
        agent.may_leave.set()
    assert session._threads.join(DEADLINE_S)
