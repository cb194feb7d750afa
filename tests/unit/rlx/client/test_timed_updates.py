"""An `AgentProxy` that keeps time, over a transport of the test; nothing depends on how long anything takes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from surreal.rlx import AgentProxy, AgentProxyConnectionError, AgentProxyException, AgentProxyReplyError
from surreal.rlx.client import connection
from surreal.rlx.client.transport import TcpTransport
from surreal.rlx.protocol.codec import decode, encode

DEADLINE_S = 20.0
#: A period in which an answer surely comes; the wait for its end is skipped.
SLOW_HZ = 0.01
#: A period in which nothing has to come.
FAST_HZ = 500.0


class Server:
    """Answers with the number of updates so far, unless the test holds answers back or cuts the network."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.flows = threading.Event()  # answers
        self.flows.set()
        self.is_down = False
        self.opened = self.updates = 0
        self.refusal = ""

    def open(self, *_: Any, **__: Any) -> Server:
        if self.is_down:
            raise ConnectionRefusedError("the network is cut")
        self.opened += 1
        return self

    def send(self, payload: bytes, deadline_s: float) -> None:
        self.requests.append(decode(payload))
        self.updates += self.requests[-1]["command"] == "update"

    def receive(self, deadline_s: float) -> bytes:
        assert self.flows.wait(DEADLINE_S)
        if self.is_down:
            raise ConnectionResetError("the network is cut")
        if self.refusal:
            return encode({"response": "error", "message": self.refusal})
        if self.requests[-1]["command"] == "init":
            return encode({"response": "ready"})
        return encode({"response": "action", "data": None if self.requests[-1]["terminal"] else self.updates})

    def close(self) -> None:
        self.flows.set()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def connect(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AgentProxy]]:
    made: list[AgentProxy] = []
    monkeypatch.setattr(connection, "open_transport", server.open)

    def make(rate_hz: float, safe_action: Any = -1) -> AgentProxy:
        agent = AgentProxy("nowhere:1", rate_hz=rate_hz, safe_action=safe_action)
        assert agent.timing is not None
        agent.timing._wait = waits.append
        agent.connect()
        agent.init()
        made.append(agent)
        return agent

    waits: list[float] = []
    make.waits = waits  # type: ignore[attr-defined]
    yield make
    for agent in made:
        agent.disconnect()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = threading.Event()
    threading.Timer(DEADLINE_S, deadline.set).start()
    while not condition():
        assert not deadline.wait(0.001)


def test_an_action_is_returned_at_the_deadline(connect: Any, server: Server) -> None:
    agent = connect(SLOW_HZ)
    assert agent.update(state=[0.0]) == 1
    assert agent.update(1.0, [1.0]) == 2
    assert agent.update(1.0, [2.0], terminal=True) is None
    assert agent.timing.failure is None
    assert len(connect.waits) == 2 and all(wait_s > 10.0 for wait_s in connect.waits)
    assert agent.timing.deadlines.missed == 0
    assert [request["reward"] for request in server.requests[1:]] == [None, 1.0, 1.0]


def test_without_an_answer_in_time_the_safe_action_is_returned_and_an_episode_begins_after_it(
    connect: Any, server: Server
) -> None:
    agent = connect(FAST_HZ)
    server.flows.clear()
    for step in range(3):
        assert agent.update(None if step == 0 else 1.0, [float(step)]) == -1
        assert isinstance(agent.timing.failure, AgentProxyConnectionError)
    assert agent.timing.deadlines.missed >= 3
    server.flows.set()
    wait_until(lambda: agent.timing._payload is None)
    agent.timing.deadlines.period_s = 1 / SLOW_HZ
    assert agent.update(1.0, [3.0]) == 2
    assert agent.timing.failure is None
    assert agent.update(1.0, [4.0]) == 3
    sent = [(request["reward"], request["state"][0]) for request in server.requests[1:]]
    assert sent == [(None, 0.0), (None, 3.0), (1.0, 4.0)]


def test_after_a_cut_the_proxy_connects_again_in_the_background(connect: Any, server: Server) -> None:
    agent = connect(SLOW_HZ, [0.5])
    assert agent.update(state=[0.0]) == 1
    server.is_down = True
    assert agent.update(1.0, [1.0]) == [0.5]  # at once: it does not wait for the deadline to know
    assert "the network is cut" in str(agent.timing.failure)
    assert agent.update(1.0, [2.0]) == [0.5]
    server.is_down = False
    wait_until(lambda: agent.timing._payload is None)
    assert server.opened == 2
    assert agent.update(1.0, [3.0]) == 3
    assert agent.timing.failure is None
    assert [request["command"] for request in server.requests] == ["init", "update", "update", "init", "update"]
    assert server.requests[-1]["reward"] is None


def test_a_pause_returns_the_safe_action_once_and_again_when_it_is_over(
    connect: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = connect(SLOW_HZ)
    assert [agent.update(state=[0.0]), agent.update(1.0, [1.0])] == [1, 2]
    agent.pause()
    assert agent.update(1.0, [2.0]) == -1
    assert str(agent.timing.failure) == "paused"
    waits, actions, wait = threading.Event(), list[Any](), agent.timing._is_running.wait

    def note(timeout_s: float) -> bool:
        waits.set()
        return wait(timeout_s)

    monkeypatch.setattr(agent.timing._is_running, "wait", note)
    thread = threading.Thread(target=lambda: actions.append(agent.update(1.0, [3.0])))
    thread.start()
    assert waits.wait(DEADLINE_S) and not actions
    agent.resume()
    thread.join(DEADLINE_S)
    assert actions == [-1]
    assert agent.update(1.0, [4.0]) == 3
    assert agent.timing.failure is None
    sent = [(request["reward"], request["state"][0]) for request in server.requests[1:]]
    assert sent == [(None, 0.0), (1.0, 1.0), (None, 4.0)]
    assert agent.timing.deadlines.missed == 0


def test_a_pause_may_end_between_two_updates_or_with_the_connection(connect: Any, server: Server) -> None:
    agent = connect(SLOW_HZ)
    agent.update(state=[0.0])
    agent.pause()
    assert agent.update(1.0, [1.0], terminal=True) is None
    agent.resume()
    assert agent.update(None, [2.0]) == 2
    agent.pause()
    agent.update(1.0, [3.0])
    agent.disconnect()
    with pytest.raises(AgentProxyException, match="only a proxy with rate_hz"):
        AgentProxy("nowhere:1").pause()


def test_an_environment_that_is_late_itself_gets_the_agents_action_at_the_next_deadline(connect: Any) -> None:
    agent = connect(SLOW_HZ)
    assert agent.update(state=[0.0]) == 1
    agent.timing.deadlines._start_s -= 2.5 / SLOW_HZ
    assert agent.update(1.0, [1.0]) == 2
    assert agent.timing.failure is None
    assert agent.timing.deadlines.missed == 1


@pytest.mark.parametrize("safe_action", [None, "last"])
def test_without_a_safe_action_a_late_one_is_an_exception(connect: Any, server: Server, safe_action: Any) -> None:
    agent = connect(FAST_HZ, safe_action)
    server.flows.clear()
    with pytest.raises(AgentProxyConnectionError, match="no action came within 2 ms"):
        agent.update(state=[0.0])


def test_the_last_action_may_be_the_safe_one(connect: Any, server: Server) -> None:
    agent = connect(SLOW_HZ, "last")
    assert agent.update(state=[0.0]) == 1
    server.is_down = True
    assert agent.update(1.0, [1.0]) == 1


def test_what_the_server_refuses_is_raised(connect: Any, server: Server) -> None:
    agent = connect(SLOW_HZ)
    server.refusal = "the state must have shape (2,)"
    with pytest.raises(AgentProxyReplyError, match="shape"):
        agent.update(state=[0.0])
    server.refusal = ""
    assert agent.update(state=[0.0]) == 2
    with pytest.raises(AgentProxyException, match="update cannot be sent"):
        agent.update(1.0, object())


def test_states_may_be_overwritten_after_update_returned(connect: Any, server: Server) -> None:
    agent = connect(FAST_HZ)
    server.flows.clear()
    state = np.zeros(2)
    agent.update(state=state)
    state[:] = 9.0
    server.flows.set()
    wait_until(lambda: len(server.requests) == 2)
    assert server.requests[-1]["state"].tolist() == [0.0, 0.0]


def test_disconnecting_ends_an_exchange_that_waits_for_an_answer() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        agent = AgentProxy("nowhere:1", rate_hz=FAST_HZ, safe_action=0)
        agent._transport = TcpTransport(ours)
        assert agent.timing is not None
        assert agent.update(state=[0.0]) == 0
        thread = agent.timing._thread
        agent.disconnect()
        assert thread is not None
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
