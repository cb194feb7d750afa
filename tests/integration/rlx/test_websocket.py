"""WebSocket: the JSON and the binary form, several sessions on one socket, plain HTTP, and pages of elsewhere."""

from __future__ import annotations

import json
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from surreal.base.types import StepKind
from surreal.rlx.protocol.codec import decode, encode
from surreal.rlx.protocol.errors import Limits
from surreal.rlx.server.admission import Admission


@pytest.fixture
def web() -> Iterator[Callable[..., ClientConnection]]:
    """Factory of WebSockets to a server."""
    with ExitStack() as stack:

        def open_socket(served: Any, **options: Any) -> ClientConnection:
            url = f"ws://127.0.0.1:{served.port}/"
            quiet = {"compression": None, "proxy": None, "close_timeout": 1, "ping_interval": None}
            return stack.enter_context(connect(url, **quiet, **options))

        yield open_socket


def ask(sock: ClientConnection, **message: Any) -> dict[str, Any]:
    sock.send(json.dumps(message))
    reply: dict[str, Any] = json.loads(sock.recv(timeout=60))
    return reply


def ask_binary(sock: ClientConnection, **message: Any) -> dict[str, Any]:
    sock.send(encode(message))
    data = sock.recv(timeout=60)
    assert isinstance(data, bytes)
    return decode(data)


def exchange(served: Any, request: str) -> str:
    """What comes back for the bytes of an HTTP request."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as sock:
        sock.sendall(request.encode())
        found = b""
        while data := sock.recv(65536):
            found += data
    return found.decode()


def test_an_episode_in_json(harness: Any, web: Any) -> None:
    served = harness()
    sock = web(served)
    assert ask(sock, sid="a", command="init", exploit=False) == {"response": "ready", "sid": "a"}
    first = {"command": "update", "reward": None, "state": [1, 0], "terminal": False}
    assert ask(sock, sid="a", **first) == {"response": "action", "data": 1, "sid": "a"}
    assert ask(sock, sid="a", command="update", reward=1, state=[-1, 0], terminal=False)["data"] == 0
    assert ask(sock, sid="a", command="update", reward=1, state=[1, 0], terminal=True) == {
        "response": "action", "data": None, "sid": "a",
    }  # fmt: skip
    assert ask(sock, sid="a", command="reset") == {"response": "done", "sid": "a"}
    served.wait(lambda: [StepKind(int(row.kind)).name for row in served.rows] == ["FIRST", "MID", "LAST"])


def test_an_episode_in_binary_frames(harness: Any, web: Any) -> None:
    served = harness()
    sock = web(served)
    assert ask_binary(sock, command="init") == {"response": "ready"}
    state = np.array([1, 0], np.float32)
    assert ask_binary(sock, command="update", state=state, terminal=False) == {"response": "action", "data": 1}
    assert ask_binary(sock, command="update", state=state, reward=1.0, terminal=False, sid=7)["response"] == "error"
    assert ask_binary(sock, command="update", state=state, reward=1.0, terminal=True)["data"] is None


def test_arrays_become_nested_lists(harness: Any, web: Any) -> None:
    sock = web(harness(action_space=spaces.Box(-1, 1, (2,), np.float32)))
    ask(sock, sid=1, command="init")
    reply = ask(sock, sid=1, command="update", state=[1, 0], terminal=False)
    assert reply["sid"] == 1
    assert len(reply["data"]) == 2


def test_several_sessions_on_one_socket_are_told_apart(harness: Any, web: Any) -> None:
    served = harness()
    sock = web(served)
    for sid in ("a", "b", 3):
        ask(sock, sid=sid, command="init", exploit=sid == "b")
    served.may_act.clear()
    for sid, value in (("a", 1), ("b", -1), (3, 1)):
        sock.send(json.dumps({"sid": sid, "command": "update", "state": [value, 0], "terminal": False}))
    served.may_act.set()
    found = {reply["sid"]: reply["data"] for reply in (json.loads(sock.recv(timeout=60)) for _ in range(3))}
    assert found == {"a": 1, "b": 0, 3: 1}
    assert sorted(int(row.env_ids) for row in served.rows) == [0, 1, 2]
    assert [row.record for row in sorted(served.rows, key=lambda row: int(row.env_ids))] == [True, False, True]
    sock.send(json.dumps({"sid": "a", "command": "disconnect"}))
    served.wait(lambda: served.closed == [0])
    assert ask(sock, sid="a", command="update", state=[1, 0])["message"] == "init comes first"
    assert ask(sock, sid=3, command="update", state=[1, 0], reward=1, terminal=False)["data"] == 1


def test_slow_session_does_not_hold_up_another_of_its_socket(harness: Any, web: Any) -> None:
    served = harness()
    sock = web(served)
    for sid in ("a", "b"):
        ask(sock, sid=sid, command="init")
    served.may_act.clear()
    sock.send(json.dumps({"sid": "a", "command": "update", "state": [1, 0], "terminal": False}))
    sock.send(json.dumps({"sid": "a", "command": "reset"}))  # waits for its turn
    assert ask(sock, sid="b", command="reset") == {"response": "done", "sid": "b"}
    served.may_act.set()
    replies = [json.loads(sock.recv(timeout=60)) for _ in range(2)]
    assert replies == [{"response": "action", "data": 1, "sid": "a"}, {"response": "done", "sid": "a"}]


def test_lost_socket_cuts_all_its_episodes(harness: Any, web: Any) -> None:
    served = harness()
    sock = web(served)
    for sid in ("a", "b"):
        ask(sock, sid=sid, command="init")
        ask(sock, sid=sid, command="update", state=[1, 0], terminal=False)
    sock.socket.shutdown(socket.SHUT_RDWR)
    served.wait(lambda: sorted(served.closed) == [0, 1])
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 0)


@pytest.mark.parametrize(
    "message",
    ["{", "[]", "nonsense", '{"a": ' + "[" * 60_000, '{"sid": "a"', b"\x01\0\0", b"\xff" * 99],
)
def test_what_does_not_decode_is_answered_and_ends_the_socket(harness: Any, web: Any, message: str | bytes) -> None:
    sock = web(harness())
    sock.send(message)
    reply = sock.recv(timeout=60)
    assert (decode(reply) if isinstance(reply, bytes) else json.loads(reply))["response"] == "error"
    with pytest.raises(ConnectionClosed):
        sock.recv(timeout=60)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"sid": ["a"], "command": "init"}, "sid must be a str or an int"),
        ({"sid": "a" * 300, "command": "init"}, "sid must be a str or an int"),
        ({"sid": "a", "command": "update", "state": [1, 0]}, "init comes first"),
        ({"command": {"x": 1}}, "init comes first"),
    ],
)
def test_request_that_cannot_be_answered_is_an_error(harness: Any, web: Any, message: Any, expected: str) -> None:
    sock = web(harness())
    assert expected in ask(sock, **message)["message"]
    assert ask(sock, sid="a", command="init")["response"] == "ready"


def test_message_over_the_limit_ends_the_socket(harness: Any, web: Any) -> None:
    sock = web(harness(limits=Limits(max_bytes=1000)))
    sock.send("x" * 2000)
    with pytest.raises(ConnectionClosed) as caught:
        sock.recv(timeout=60)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009


def test_what_comes_after_a_refusal_is_not_read_for_long(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.rlx.server.connections.websocket._CLOSE_TIMEOUT_S", 3600)
    served = harness()
    nested = b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}"
    text = struct.pack(">BBH", 0x81, 0xFE, len(nested)) + bytes(4) + nested
    upgrade = "GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as sock:
        sock.sendall(upgrade.encode())
        with pytest.raises(ConnectionError):  # it does not answer the closing frame
            while True:
                sock.sendall(text)
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 0)


def test_fragmented_message_is_put_together(harness: Any, web: Any) -> None:
    sock = web(harness())
    sock.send(['{"sid": 1, ', '"command"', ': "init"}'])
    assert json.loads(sock.recv(timeout=60)) == {"response": "ready", "sid": 1}


@pytest.mark.parametrize(
    "message",
    [
        {"sid": "a", "command": "init", "token": "wrong"}, {"command": "bogus"}, {"command": "disconnect"},
        {"sid": ["a"], "command": "init", "token": "secret"},
    ],
)  # fmt: skip
def test_anything_but_an_init_with_the_token_ends_the_socket(harness: Any, web: Any, message: Any) -> None:
    served = harness(token="secret")
    known, stranger = web(served), web(served)
    assert ask(known, sid="a", command="init", token="secret")["response"] == "ready"
    assert ask(stranger, **message)["response"] == "error"
    with pytest.raises(ConnectionClosed):
        stranger.recv(timeout=60)
    assert ask(known, sid="a", command="bogus")["response"] == "error"
    assert ask(known, sid="a", command="reset")["response"] == "done"


def test_each_session_of_a_socket_is_admitted_for_itself(harness: Any, web: Any, wire: Any) -> None:
    served = harness(admission=Admission(2, 0))
    sock = web(served)
    assert [ask(sock, sid=sid, command="init")["response"] for sid in ("a", "b", "c")] == ["ready", "ready", "error"]
    assert wire(served).is_closed()


def test_pages_of_elsewhere_may_not_connect(harness: Any, web: Any) -> None:
    served = harness(origins=("https://good.example",))
    for origin in ("https://good.example", "http://localhost:5173"):
        assert ask(web(served, origin=origin), sid="a", command="init")["response"] == "ready"
    with pytest.raises(InvalidStatus) as caught:
        web(served, origin="https://evil.example")
    assert caught.value.response.status_code == 403


@pytest.mark.parametrize("header", ["Origin: http://localhost:1", "Host: there"])
def test_origin_and_host_are_said_once(harness: Any, header: str, caplog: pytest.LogCaptureFixture) -> None:
    head = f"GET / HTTP/1.1\r\nHost: here\r\n{header}\r\nOrigin: http://localhost:1\r\nUpgrade: websocket\r\n\r\n"
    assert exchange(harness(), head).startswith("HTTP/1.1 400")
    assert not caplog.records


@pytest.mark.parametrize(
    ("method", "path", "status", "length", "body"),
    [
        ("GET", "/health", 200, 3, "ok\n"), ("HEAD", "/health", 200, 3, ""), ("HEAD", "/none", 404, 54, ""),
        ("POST", "/health", 405, 18, "only GET and HEAD\n"),
    ],
)  # fmt: skip
def test_head_has_no_body(harness: Any, method: str, path: str, status: int, length: int, body: str) -> None:
    head, _, found = exchange(harness(), f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n").partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert f"content-length: {length}" in head.lower()
    assert found == body


def test_one_socket_cannot_take_all_slots(harness: Any, web: Any, wire: Any) -> None:
    served = harness(admission=Admission(8, 0), max_connection_sessions=3)
    sock = web(served)
    assert [ask(sock, sid=sid, command="init")["response"] for sid in range(5)] == ["ready"] * 3 + ["error"] * 2
    assert "one connection may have 3 sessions" in ask(sock, sid=9, command="init")["message"]
    assert wire(served).init() == {"response": "ready"}
    sock.send(json.dumps({"sid": 0, "command": "disconnect"}))
    assert ask(sock, sid=9, command="init")["response"] == "ready"


def test_pings_are_answered(harness: Any, web: Any) -> None:
    assert web(harness()).ping().wait(60)


def test_old_socket_is_closed_once_no_session_is_in_an_episode(harness: Any, web: Any) -> None:
    served = harness(timeout_s=0.0001)
    sock = web(served)
    for sid in ("a", "b"):
        ask(sock, sid=sid, command="init")
        ask(sock, sid=sid, command="update", state=[1, 0], terminal=False)
    assert ask(sock, sid="a", command="update", state=[1, 0], reward=1, terminal=True)["data"] is None
    assert ask(sock, sid="b", command="update", state=[1, 0], reward=1, terminal=False)["data"] == 1
    assert ask(sock, sid="b", command="update", state=[1, 0], reward=1, terminal=True)["data"] is None
    with pytest.raises(ConnectionClosed) as caught:
        sock.recv(timeout=60)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001


def test_files_and_health_over_http(harness: Any, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>hello")
    url = f"http://127.0.0.1:{harness(static_dir=tmp_path).port}"
    with urllib.request.urlopen(f"{url}/", timeout=60) as page:
        assert page.read() == b"<p>hello"
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    with urllib.request.urlopen(f"{url}/health", timeout=60) as page:
        assert page.status == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/none", timeout=60)


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\x05hello", b"\x81\xff" + struct.pack(">Q", 1 << 62), b"\xff\xff\xff\xff", b"\x80\x80\0\0\0\0",
        b"\x89\xfe\xff\xff", b"\x82\x84\0\0\0\0\x01",
    ],
)  # fmt: skip
def test_garbage_after_the_handshake_disturbs_nobody(harness: Any, web: Any, data: bytes) -> None:
    served = harness()
    good, bad = web(served), web(served)
    ask(good, sid="a", command="init")
    ask(bad, sid="a", command="init")
    bad.socket.sendall(data)
    with suppress(OSError):  # the server was quicker
        bad.socket.shutdown(socket.SHUT_RDWR)
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 1)
    assert ask(good, sid="a", command="update", state=[1, 0], terminal=False)["data"] == 1


def test_sessions_are_counted_as_they_come_and_go(harness: Any, web: Any, wire: Any) -> None:
    served = harness(admission=Admission(3, 0))
    sock = web(served)
    for _ in range(3):
        assert [ask(sock, sid=sid, command="init")["response"] for sid in ("a", "b", "c")] == ["ready"] * 3
        assert ask(sock, sid="d", command="init")["response"] == "error"
        for sid in ("a", "b", "c"):
            sock.send(json.dumps({"sid": sid, "command": "disconnect"}))
    sock.close()
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 0)
    clients = [wire(served) for _ in range(3)]
    assert [client.init()["response"] for client in clients] == ["ready"] * 3
