"""AgentProxy over a transport that is not there: what it sends, and what it makes of answers and failures."""

from __future__ import annotations

import random
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal.rlx import (
    AgentProxy,
    AgentProxyConnectionError,
    AgentProxyException,
    AgentProxyReplyError,
)
from surreal.rlx.client import connection
from surreal.rlx.client.transport import Address, parse_address
from surreal.rlx.protocol.codec import decode, encode

Answer = Callable[[dict[str, Any]], bytes]


class FakeTransport:
    """Answers at once, with what a function makes of the request."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[dict[str, Any]] = []
        self.is_closed = False
        self._answer = answer

    def send(self, payload: bytes, deadline_s: float) -> None:
        self.requests.append(decode(payload))

    def receive(self, deadline_s: float) -> bytes:
        return self._answer(self.requests[-1])

    def close(self) -> None:
        self.is_closed = True


def reply(**message: Any) -> Answer:
    return lambda _: encode(message)


def fail(error: Exception) -> Answer:
    def answer(_: dict[str, Any]) -> bytes:
        raise error

    return answer


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[AgentProxy, FakeTransport]]:
    def make(answer: Answer, **options: Any) -> tuple[AgentProxy, FakeTransport]:
        transport = FakeTransport(answer)
        monkeypatch.setattr(connection, "open_transport", lambda *_, **__: transport)
        agent = AgentProxy("nowhere:1", **options)
        agent.connect()
        return agent, transport

    return make


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: waits.append(timeout or 0) or False)
    return waits


def test_importing_the_client_needs_neither_torch_nor_redis_nor_gymnasium() -> None:
    code = "import sys, surreal.rlx; print(sorted({'torch', 'redis', 'gymnasium', 'psutil'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:5", Address("host", 5)),
        ("host", Address("host", 7001)),
        ("[::1]:5", Address("::1", 5)),
        (("host", 5), Address("host", 5)),
        ("rlx://host:5", Address("host", 5)),
        ("rlxs://host:5", Address("host", 5, is_tls=True)),
        ("ws://host:5/a?b=c", Address("host", 5, is_websocket=True, path="/a?b=c")),
        ("wss://host", Address("host", 7001, is_websocket=True, is_tls=True)),
    ],
)
def test_address_forms(text: str | tuple[str, int], expected: Address) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", ":7001", "host:port", "host:99999", "http://host:1", "a:b:c"])
def test_what_is_no_address_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        AgentProxy(text)


def test_times_must_be_positive() -> None:
    with pytest.raises(ValueError, match="timeout_s is 0"):
        AgentProxy(timeout_s=0)


def test_init_sends_the_token_only_if_there_is_one(connect: Any) -> None:
    agent, transport = connect(reply(response="ready"))
    assert agent.init(exploit=True) == "ready"
    assert transport.requests == [{"command": "init", "exploit": True}]
    agent, transport = connect(reply(response="ready"), token="s3cret")
    agent.init()
    assert transport.requests == [{"command": "init", "exploit": False, "token": "s3cret"}]


def test_update_sends_the_four_values_and_returns_the_action(connect: Any) -> None:
    agent, transport = connect(reply(response="action", data=2))
    assert agent.update(state=[1.0, 2.0]) == 2
    assert transport.requests == [{"command": "update", "reward": None, "state": [1.0, 2.0], "terminal": False}]


def test_a_truncated_update_is_terminal_for_servers_that_do_not_know_truncation(connect: Any) -> None:
    agent, transport = connect(reply(response="action", data=None))
    assert agent.update(1.5, None, truncated=True) is None
    assert transport.requests[0]["terminal"] is True
    assert transport.requests[0]["truncated"] is True


@pytest.mark.parametrize(
    "action", [3, -0.5, [0.1, 0.2], np.array([1, 2]), np.array([[0.5]], np.float32), {"a": 1}, None], ids=str
)
def test_actions_arrive_as_they_were_sent(connect: Any, action: Any) -> None:
    agent, _ = connect(reply(response="action", data=action))
    np.testing.assert_equal(agent.update(), action)


def test_reset_and_metrics(connect: Any) -> None:
    agent, transport = connect(reply(response="done"))
    assert agent.reset() == "done"
    agent.metrics.scalar("loss", 0.5, x=7)
    agent.metrics.histogram("weights", [1.0, 2.0])
    assert transport.requests == [
        {"command": "reset"},
        {"command": "update_metrics", "data": [{"method": "scalar", "name": "loss", "y": 0.5, "x": 7}]},
        {"command": "update_metrics", "data": [{"method": "histogram", "name": "weights", "y": [1.0, 2.0], "x": None}]},
    ]


def test_an_error_reply_leaves_the_connection_open(connect: Any) -> None:
    agent, transport = connect(reply(response="error", message="the state must have shape (4,)"))
    with pytest.raises(AgentProxyReplyError, match=r"shape \(4,\)"):
        agent.update(state=[1])
    assert agent.is_connected
    assert not transport.is_closed


@pytest.mark.parametrize(
    "error",
    [ConnectionResetError("gone"), TimeoutError("late"), BrokenPipeError(), ssl.SSLError("bad record")],
    ids=repr,
)
def test_a_lost_connection_is_closed_and_told_apart(connect: Any, error: Exception) -> None:
    agent, transport = connect(fail(error))
    with pytest.raises(AgentProxyConnectionError):
        agent.update()
    assert not agent.is_connected
    assert transport.is_closed
    with pytest.raises(AgentProxyConnectionError, match="not connected"):
        agent.update()


@pytest.mark.parametrize(
    "answer", [lambda _: b"garbage", reply(data=1), fail(KeyboardInterrupt())], ids=["1", "2", "3"]
)  # type: ignore[arg-type]
def test_after_an_answer_that_is_none_nothing_is_read_any_more(connect: Any, answer: Answer) -> None:
    agent, transport = connect(answer)
    with pytest.raises((AgentProxyException, KeyboardInterrupt)) as caught:
        agent.update()
    assert not isinstance(caught.value, AgentProxyConnectionError)
    assert transport.is_closed


def test_a_state_that_cannot_be_sent_costs_nothing(connect: Any) -> None:
    agent, transport = connect(reply(response="action", data=1))
    with pytest.raises(AgentProxyException, match=r"cannot be sent.*bytes"):
        agent.update(state=b"raw")
    assert transport.requests == []
    assert agent.update(state=[1]) == 1


def test_connecting_is_tried_again_with_jittered_growing_waits(
    monkeypatch: pytest.MonkeyPatch, no_waiting: list[float]
) -> None:
    attempts = []

    def refuse(*_: Any, **__: Any) -> None:
        attempts.append(1)
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(connection, "open_transport", refuse)
    with pytest.raises(AgentProxyConnectionError, match="nobody there"):
        AgentProxy("nowhere:1", rng=random.Random(1)).connect(retry=7)
    assert len(attempts) == 7
    assert len(no_waiting) == 6
    for index, wait_s in enumerate(no_waiting):
        longest = min(8.0, 0.5 * 2**index)
        assert longest / 2 <= wait_s <= longest


def test_a_certificate_that_is_not_accepted_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, no_waiting: list[float]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ssl.SSLCertVerificationError("self-signed certificate")

    monkeypatch.setattr(connection, "open_transport", refuse)
    with pytest.raises(AgentProxyException, match="certificate") as caught:
        AgentProxy("nowhere:1", tls=True).connect()
    assert not isinstance(caught.value, AgentProxyConnectionError)
    assert not no_waiting


def test_a_stop_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(connection, "open_transport", refuse)
    stop = threading.Event()
    stop.set()
    with pytest.raises(AgentProxyConnectionError):
        AgentProxy("nowhere:1").connect(retry=1000, stop=stop)


def test_leaving_the_with_block_disconnects(connect: Any) -> None:
    agent, transport = connect(reply(response="done"))
    with agent:
        agent.reset()
    assert transport.is_closed
    agent.disconnect()


@pytest.mark.parametrize("name", ["missing.pem", "empty.pem", "text.pem"])
def test_certificates_that_cannot_be_read_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.pem").touch()
    (tmp_path / "text.pem").write_text("no certificate")
    with pytest.raises(AgentProxyException, match=f"^the certificates in {tmp_path / name} cannot be read: "):
        AgentProxy("localhost", tls_ca=str(tmp_path / name))
