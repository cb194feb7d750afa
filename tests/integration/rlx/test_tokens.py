"""Clients that have a token each: names, unknown tokens, and tokens that are revoked while the server runs."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from surreal.rlx import AgentProxy, AgentProxyConnectionError, AgentProxyReplyError
from surreal.rlx.server.tokens import ClientTokens

ARM, LEG = "token-of-the-arm", "token-of-the-leg"
BOTH = f"# robots\n\narm-1: {ARM}\nleg:{LEG}\n"
REVOKED = "the token of arm-1 was revoked"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tokens").write_text(BOTH)
    return tmp_path / "tokens"


def replace(file: Path, text: str) -> None:
    """Write a file as secrets are written: whole, under its name."""
    file.with_suffix(".new").write_text(text)
    os.replace(file.with_suffix(".new"), file)


def open_sessions(served: Any) -> dict[str, float]:
    prefix = "rlx/client_sessions_count/"
    found = served.server.metrics().items()
    return {name.removeprefix(prefix): count for name, count in found if name.startswith(prefix)}


def test_each_client_has_its_token_and_its_name(harness: Any, wire: Any, file: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "surreal.rlx")
    served = harness(tokens=ClientTokens(file), token="one for all")
    for token in (ARM, LEG, "one for all"):
        assert wire(served).init(token=token) == {"response": "ready"}
    for token in (None, "", "arm-1", ARM[:-1], 5):
        stranger = wire(served)
        assert stranger.init(token=token)["message"] == "the token is missing or wrong"
        assert stranger.is_closed()
    assert open_sessions(served) == {"arm-1": 1, "leg": 1}
    assert "arm-1 begins a session" in caplog.text
    assert ARM not in caplog.text


def test_sessions_of_a_revoked_token_end_at_once(harness: Any, wire: Any, file: Path) -> None:
    served = harness(tokens=ClientTokens(file))
    acting, resting, other = wire(served), wire(served), wire(served)
    for client, token in ((acting, ARM), (resting, ARM), (other, LEG)):
        client.init(token=token)
        assert client.update([1, 0]) == 1
    served.may_act.clear()
    acting.send(command="update", reward=1.0, state=[1, 0], terminal=False)
    served.wait(lambda: len(served.rows) == 4)
    replace(file, f"leg: {LEG}\n")
    for client in (acting, resting):
        assert client.recv() == {"response": "error", "message": REVOKED}
        assert client.is_closed()
    served.may_act.set()
    served.wait(lambda: len(served.closed) == 2)
    assert other.update([1, 0], 1.0) == 1
    assert wire(served).init(token=ARM)["message"] == "the token is missing or wrong"
    assert open_sessions(served) == {"leg": 1}


@pytest.mark.parametrize("scheme", ["rlx", "ws"])
def test_python_client_learns_why_its_session_ended(harness: Any, file: Path, scheme: str) -> None:
    served = harness(tokens=ClientTokens(file))
    with AgentProxy(f"{scheme}://127.0.0.1:{served.port}", token=ARM) as agent:
        agent.connect()
        agent.init()
        agent.update(state=[1.0, 0.0])
        replace(file, f"leg: {LEG}\n")
        served.wait(lambda: len(served.closed) == 1)
        with pytest.raises(AgentProxyReplyError, match=REVOKED):
            agent.update(1.0, [1.0, 0.0])
        with pytest.raises(AgentProxyConnectionError):
            agent.update(1.0, [1.0, 0.0])
        agent.connect()
        with pytest.raises(AgentProxyReplyError, match="the token is missing or wrong"):
            agent.init()


def test_only_the_revoked_sessions_of_a_socket_end(harness: Any, file: Path) -> None:
    served = harness(tokens=ClientTokens(file))
    with connect(f"ws://127.0.0.1:{served.port}/", proxy=None, close_timeout=1) as sock:

        def ask(**message: Any) -> dict[str, Any]:
            sock.send(json.dumps(message))
            reply: dict[str, Any] = json.loads(sock.recv(timeout=60))
            return reply

        for sid, token in (("a", ARM), ("l", LEG)):
            assert ask(sid=sid, command="init", token=token)["response"] == "ready"
        replace(file, f"leg: {LEG}\n")
        assert json.loads(sock.recv(timeout=60)) == {"response": "error", "message": REVOKED, "sid": "a"}
        assert ask(sid="a", command="reset")["message"] == "init comes first"
        assert ask(sid="l", command="update", reward=None, state=[1, 0])["data"] == 1
        replace(file, f"arm-1: {ARM}\n")
        assert json.loads(sock.recv(timeout=60))["message"] == "the token of leg was revoked"
        with pytest.raises(ConnectionClosed):
            sock.recv(timeout=60)


def test_a_broken_file_revokes_nothing_until_it_is_mended(harness: Any, wire: Any, file: Path, caplog: Any) -> None:
    served = harness(tokens=ClientTokens(file))
    client = wire(served)
    client.init(token=ARM)
    replace(file, f"leg {LEG}\n")
    served.wait(lambda: "line 1 of" in caplog.text)
    assert LEG not in caplog.text
    file.unlink()
    served.wait(lambda: "No such file" in caplog.text)
    assert client.update([1, 0]) == 1
    replace(file, f"arm-1: {LEG}\n")  # another token for the same client
    assert client.recv()["message"] == REVOKED
    assert wire(served).init(token=LEG) == {"response": "ready"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is empty"),
        ("arm", "line 1 .* must be NAME: TOKEN"),
        (f"# mine\nmy arm: {ARM}", "line 2"),
        ("arm: short", "the token of arm must have at least 8 characters"),
        (f"arm: {ARM}\narm: {LEG}", "line 2 .* occurs twice"),
        (f"arm: {ARM}\nleg: {ARM}", "line 2 .* occurs twice"),
    ],
)
def test_wrong_file_is_refused(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(ValueError, match=error) as caught:
        ClientTokens(tmp_path / "tokens")
    assert ARM not in str(caught.value)
