"""How the server's thread is shared: what a connection gets done before it is somebody else's turn."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.framing import frame
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.connections.connection import BaseConnection
from surreal.rlx.server.connections.tcp import TcpConnection
from surreal.rlx.server.connections.websocket import WebSocketConnection
from surreal.rlx.server.hub import Hub
from surreal.rlx.server.polling import TURN_REQUESTS, TURN_S, Account, Turns
from surreal.rlx.server.settings import ServerSettings

INIT = {"command": "init"}
STEP = {"command": "update", "reward": 1.0, "state": np.zeros(2, np.float32), "terminal": False}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def tcp(**message: Any) -> bytes:
    return frame(encode(message))


def web(opcode: int, payload: bytes = b"") -> bytes:
    """A frame of a client; its mask changes nothing."""
    return struct.pack(">BBH", opcode, 0xFE, len(payload)) + bytes(4) + payload


def text(**message: Any) -> bytes:
    return web(0x81, json.dumps(message).encode())


class Wire:
    """A transport that notes whose replies went out, in a log that all share."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log
        self.is_closed = False
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.log += [self.name] * max(1, data.count(b"response"))

    def get_extra_info(self, _: str) -> Any:
        return None

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Case:
    """All of a server but its sockets and threads, in a time that stands still, and an agent that acts at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool = RlxEnvPool(gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-9, 9, (2,), np.float32))
        self.hub = Hub(self.pool, ServerSettings(admission=Admission(None, 0)), self.loop)
        self.hub.turns.clock = lambda: 0.0
        monkeypatch.setattr(self.hub.poller, "add", lambda _: False)
        monkeypatch.setattr(self.hub.poller, "remove", lambda _: False)
        self.log: list[str] = []

    def connect(self, kind: type[BaseConnection], name: str) -> BaseConnection:
        connection = kind(self.hub, Wire(name, self.log))  # type: ignore[arg-type]
        self.feed(connection, UPGRADE if kind is WebSocketConnection else tcp(**INIT))
        self.turn()
        self.log.clear()
        return connection

    def feed(self, connection: BaseConnection, data: bytes) -> None:
        for start in range(0, len(data), len(self.hub.buffer)):
            piece = data[start : start + len(self.hub.buffer)]
            self.hub.buffer[: len(piece)] = piece
            connection.buffer_updated(len(piece))

    def turn(self) -> None:
        """Let the event loop turn once, and the agent act for who waits."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        batch = self.pool.recv(0.0)
        ids = batch.env_ids[batch.num_last :]
        if len(ids):
            self.pool.send(np.zeros(len(ids), np.int64), ids)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    found = Case(monkeypatch)
    yield found
    found.hub.poller.close()
    found.loop.close()


METRIC = {"name": "n", "y": 1.0, "x": None}
FLOODS: list[tuple[type[BaseConnection], bytes]] = [
    (TcpConnection, tcp(command="fly")),
    (TcpConnection, tcp(command="reset")),
    (TcpConnection, tcp(command="update_metrics", data=[])),
    (TcpConnection, tcp(command="update_metrics", data=[METRIC])),
    (TcpConnection, tcp(command="update", state=[1.0], reward=1.0)),
    (WebSocketConnection, text(command="fly")),
    (WebSocketConnection, web(0x89)),
]


@pytest.mark.parametrize(("kind", "request_"), FLOODS)
def test_bystander_waits_for_a_few_requests_of_a_flood_only(
    case: Case, kind: type[BaseConnection], request_: bytes
) -> None:
    bystander, flooder = case.connect(TcpConnection, "bystander"), case.connect(kind, "flooder")
    case.feed(flooder, request_ * 1000)
    case.feed(bystander, tcp(**STEP))
    for _ in range(100):
        case.turn()
        if "bystander" in case.log:
            break
    assert case.log.index("bystander") <= 8 * TURN_REQUESTS
    for _ in range(200):
        case.turn()
    # All of it is answered in the end, and then there may come more.
    assert case.log.count("flooder") == 1000 if kind is TcpConnection else not flooder.has_work()
    assert flooder.transport.is_read  # type: ignore[attr-defined]


def test_floods_take_turns_and_are_not_read_meanwhile(case: Case) -> None:
    flooders = [case.connect(TcpConnection, str(number)) for number in range(3)]
    for flooder in flooders:
        case.feed(flooder, tcp(command="reset") * 500)
        assert not flooder.transport.is_read  # type: ignore[attr-defined]
    for _ in range(12):
        case.turn()
    counts = [case.log.count(str(number)) for number in range(3)]
    assert max(counts) < 500
    assert max(counts) - min(counts) <= TURN_REQUESTS


def test_tiny_fragments_are_put_together_a_few_at_a_time(case: Case) -> None:
    flooder = case.connect(WebSocketConnection, "flooder")
    message = json.dumps({"sid": 1, "command": "init"}).encode()
    pieces = [web(0x01), *[web(0x00)] * 300, web(0x80, message)]
    case.feed(flooder, b"".join(pieces))
    assert case.log == []
    for _ in range(300 // TURN_REQUESTS + 2):
        case.turn()
    assert case.log == ["flooder"]


def test_many_sessions_of_one_socket_are_answered_by_and_by(case: Case) -> None:
    bystander, flooder = case.connect(TcpConnection, "bystander"), case.connect(WebSocketConnection, "flooder")
    for sid in range(60):
        case.feed(flooder, text(sid=sid, **INIT))
    for _ in range(10):
        case.turn()
    case.log.clear()
    update = {**STEP, "state": [0, 0]}
    case.feed(flooder, b"".join(text(sid=sid, **update) for sid in range(60)) * 4)
    case.feed(bystander, tcp(**STEP))
    for _ in range(50):
        case.turn()
    # Its answer does not wait for those that share the agent's turn with it.
    assert case.log.index("bystander") == 0
    assert case.log.count("flooder") == 240


def test_dead_peer_is_answered_no_more(case: Case) -> None:
    flooder = case.connect(TcpConnection, "flooder")
    case.feed(flooder, tcp(command="reset") * 500)
    flooder.transport.close()
    answered = len(case.log)
    for _ in range(20):
        case.turn()
    assert len(case.log) == answered


class Loop:
    """An event loop's timers, in a time of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Any]] = []

    def call_later(self, delay: float, callback: Any) -> None:
        self.timers.append((self.now + delay, callback))

    def advance(self) -> None:
        due, callback = self.timers.pop(0)
        self.now = max(self.now, due)
        callback()


def test_queue_as_a_whole_rests_for_longer_than_it_works() -> None:
    loop = Loop()
    turns = Turns(loop, lambda: loop.now)  # type: ignore[arg-type]
    worked: list[str] = []

    class Busy:
        def __init__(self, name: str) -> None:
            self.name = name

        def take_turn(self) -> None:
            loop.now += TURN_S
            worked.append(self.name)
            turns.charge(TURN_S)
            turns.put(self)

    for name in "ab":
        turns.put(Busy(name))
    for _ in range(400):
        loop.advance()
    assert worked[:4] == ["a", "b", "a", "b"]
    assert len(worked) * TURN_S < 0.4 * loop.now


def test_account_forgives_a_little_and_recovers() -> None:
    account, now = Account(), 1.0
    assert not account.charge(0.0005, now)
    assert account.charge(0.01, now)
    assert not account.charge(0.0005, now + 1.0)


def test_what_a_lost_connection_owes_is_owed_by_the_strangers() -> None:
    lost, strangers = Account(), Account()
    assert lost.charge(0.010, 1.0)
    assert not strangers.owes(1.0)
    strangers.inherit(lost, 1.0)
    assert strangers.wait_s(1.0) == pytest.approx(0.018)  # twice 10 ms, and 2 ms may be owed
    strangers.inherit(lost, 1.030)  # it has rested by then
    assert not strangers.owes(1.030)
