"""Clients that want a policy's Q values or probabilities with its actions, next to clients that do not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from websockets.sync.client import connect

from surreal.agent import Agent, AgentLoop, NoisyQAgent, PolicyAgent, QAgent
from surreal.model import ActorCritic, NoisyQFunction, QFunction
from surreal.rlx import AgentProxy, AgentProxyReplyError
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.framing import frame
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

SPACE, THREE = spaces.Box(-9, 9, (2,), np.float32), spaces.Discrete(3)
STATE = np.array([0.5, -2.0], np.float32)


@pytest.fixture
def serve() -> Iterator[Callable[[Agent], int]]:
    """Serve an agent; returns the port."""
    with ExitStack() as stack:

        def start(agent: Agent) -> int:
            pool, stop = RlxEnvPool(THREE, SPACE), threading.Event()
            server = stack.enter_context(RlxServer(pool, ServerSettings(port=0, admission=Admission(None, 0))))
            thread = threading.Thread(target=AgentLoop(pool, agent, None).run, args=(stop,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(stop.set)
            return server.port

        yield start


def ask(port: int, want: list[str], *, scheme: str = "rlx") -> tuple[int, dict[str, Any]]:
    with AgentProxy(f"{scheme}://127.0.0.1:{port}") as agent:
        agent.connect()
        agent.init(exploit=True, want=want)
        action = agent.update(state=STATE)
        found = agent.outputs
        assert agent.update(1.0, STATE, terminal=True) is None
        assert agent.outputs == {}
        return action, found


@pytest.mark.parametrize("scheme", ["rlx", "ws"])
@pytest.mark.parametrize("noisy", [False, True])
def test_q_values_come_with_the_action(serve: Any, scheme: str, noisy: bool) -> None:
    model = NoisyQFunction(hiddens=[8], action_space=3) if noisy else QFunction(hiddens=[8], action_space=3)
    port = serve(NoisyQAgent(model) if isinstance(model, NoisyQFunction) else QAgent(model, None))
    action, outputs = ask(port, ["q_values", "probabilities"], scheme=scheme)
    if isinstance(model, NoisyQFunction):
        model.clear_noise()
    with torch.no_grad():
        expected = model(torch.from_numpy(STATE)[None])[0].numpy()
    np.testing.assert_allclose(outputs["q_values"], expected, rtol=1e-5, atol=1e-6)
    assert action == expected.argmax()
    assert outputs["probabilities"] is None  # this policy has none


def test_probabilities_come_with_the_action(serve: Any) -> None:
    model = ActorCritic(hiddens=[8], action_space=THREE)
    port = serve(PolicyAgent(model))
    action, outputs = ask(port, ["probabilities"])
    with torch.no_grad():
        policy, _ = model(torch.from_numpy(STATE)[None])
    np.testing.assert_allclose(outputs["probabilities"], policy.logits.exp()[0].numpy(), rtol=1e-4)
    assert action == np.argmax(outputs["probabilities"])


def test_other_clients_of_the_same_server_get_the_same_bytes_as_before(serve: Any, wire: Any) -> None:
    port = serve(QAgent(QFunction(hiddens=[8], action_space=3), 0.5))

    class Here:
        pass

    Here.port = port  # type: ignore[attr-defined]
    curious, plain = wire(Here), wire(Here)
    assert curious.init(want=["q_values"]) == plain.init() == {"response": "ready"}
    reward = None
    for _ in range(20):
        for client in (curious, plain):
            client.send(command="update", reward=reward, state=STATE, terminal=False)
        assert set(curious.recv()) == {"response", "data", "q_values"}
        received = plain.sock.recv(65536)
        assert received in [frame(encode({"response": "action", "data": action})) for action in range(3)]
        reward = 1.0
    assert curious.init() == {"response": "ready"}  # it no longer asks
    assert set(curious.ask(command="update", reward=None, state=STATE, terminal=False)) == {"response", "data"}


@pytest.mark.parametrize("want", ["q_values", ["values"], [5], {"q_values": 1}, 7])
def test_unknown_wish_is_an_error_and_the_connection_stays(serve: Any, want: Any) -> None:
    port = serve(QAgent(QFunction(hiddens=[8], action_space=3), None))
    with connect(f"ws://127.0.0.1:{port}/", proxy=None, close_timeout=1) as sock:
        sock.send(json.dumps({"command": "init", "want": want}))
        assert "want must be a list of q_values and probabilities" in json.loads(sock.recv(timeout=60))["message"]
    with AgentProxy(("127.0.0.1", port)) as agent:
        agent.connect()
        with pytest.raises(AgentProxyReplyError, match="want"):
            agent.init(want=["values"])
        agent.init(want=["q_values"])
        agent.update(state=STATE)
        assert len(agent.outputs["q_values"]) == 3
