"""Clients that misbehave: the others go on undisturbed, and nothing of them is left behind."""

from __future__ import annotations

import os
import random
import resource
import select
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.errors import Limits
from surreal.rlx.protocol.framing import frame
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.settings import load_tls

INIT = frame(encode({"command": "init"}))
FIRST = frame(encode({"command": "update", "reward": None, "state": [1.0, 2.0], "terminal": False}))
NEXT = frame(encode({"command": "update", "reward": 1.0, "state": np.ones(2, np.float32), "terminal": False}))
LAST = frame(encode({"command": "update", "reward": 1.0, "state": [1.0, 2.0], "terminal": True}))

NESTED = encode({}) + b"\x01\0\0\0a" + b"\x08\x01\0\0\0" * 70_000 + b"\x01"
GARBAGE = [
    b"\0\0\0\0", b"hello world\r\n\r\n", b"999999999:", b"0000000001", b"5:hello,", b"-5:hello,", b"4:\x01\0\0\0,x",
    b"12:", b"3:abc;", bytes(range(256)), frame(NESTED), frame(b"\x01\0\0\0" + struct.pack("<I", 10**9)),
    frame(encode({}) + b"\x01\0\0\0a\x07" + struct.pack("<I", 10**9)), INIT + frame(b"\x01\0\0\0\xff"),
    b"\x16\x03\x01\x02\0",
    b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"GET " + b"a" * 100_000,
    b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
]  # fmt: skip


class Bystander:
    """A client that plays on while others misbehave, and must notice nothing."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.steps = 0
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        client.init()
        assert client.update([1, 0]) == 1
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        try:
            while not self._stop.is_set():
                assert self.client.update([(-1) ** self.steps, 0], 1.0) == (self.steps + 1) % 2
                self.steps += 1
        except BaseException as error:
            self.failure = error

    def finish(self) -> None:
        steps, deadline_s = self.steps, time.monotonic() + 60
        while self.steps == steps and self.failure is None:  # it plays on, after all that
            assert time.monotonic() < deadline_s
            time.sleep(0.002)
        self._stop.set()
        self._thread.join(60)
        assert self.failure is None, repr(self.failure)


@pytest.fixture
def bystander(harness: Any, wire: Any) -> Any:
    """A server with a bystander: (server, bystander)."""
    served = harness(idle_timeout_s=30.0, limits=Limits())
    one = Bystander(wire(served))
    yield served, one
    one.finish()
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 1)


def connect(served: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=60)


def read_all(sock: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionResetError, TimeoutError):
        while data := sock.recv(65536):
            found += data
    return found


@pytest.mark.parametrize("split", [1, 2, 3, 7])
def test_bytes_split_everywhere(harness: Any, split: int) -> None:
    served = harness()
    with connect(served) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = INIT + FIRST + NEXT * 3 + LAST + FIRST
        for start in range(0, len(stream), split):
            sock.sendall(stream[start : start + split])
        sock.shutdown(socket.SHUT_WR)
        replies = read_all(sock)
    assert replies.count(b"action") == 6
    assert replies.count(b"ready") == 1


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_answered_and_cut_off(bystander: Any, garbage: bytes) -> None:
    served, one = bystander
    with connect(served) as sock:
        with suppress(OSError):
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
        read_all(sock)
    steps = one.steps
    served.wait(lambda: one.steps > steps)


def test_malformed_bytes_get_an_error_before_the_end(harness: Any, wire: Any) -> None:
    client = wire(harness())
    client.init()
    client.sock.sendall(FIRST + b"5:hello,")
    assert client.recv()["response"] == "action"
    assert client.recv()["response"] == "error"
    assert client.is_closed()


def test_slow_loris_and_half_a_frame_are_cut_off(harness: Any, wire: Any) -> None:
    served = harness(idle_timeout_s=3.0)
    half, silent, slow = connect(served), connect(served), connect(served)
    half.sendall(b"1000000:abc")
    slow.sendall(b"1000000:")
    good = wire(served)
    good.init()
    good.update([1, 0])
    live, deadline_s = {half, silent, slow}, time.monotonic() + 60
    while live:
        assert time.monotonic() < deadline_s
        assert good.update([1, 0], 1.0) == 1
        with suppress(OSError):
            slow.sendall(b"x")
        for sock in select.select(list(live), [], [], 0.01)[0]:
            if not read_all(sock):
                live.remove(sock)
                sock.close()
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 1)
    assert good.update([1, 0], 1.0) == 1


def test_session_that_waits_for_its_action_is_not_idle(harness: Any, wire: Any) -> None:
    served = harness(idle_timeout_s=3.0)
    client = wire(served)
    client.init()
    served.may_act.clear()
    client.send(command="update", reward=None, state=[1, 0], terminal=False)
    silent = wire(served)
    silent.init()
    assert silent.is_closed()  # so whoever is idle would be by now
    served.may_act.set()
    assert client.recv()["data"] == 1
    hub, has_swept = served.server._hub, threading.Event()
    served.server._loop.call_soon_threadsafe(lambda: (hub.sweep(), has_swept.set()))
    assert has_swept.wait(60)
    assert client.update([1, 0], 1.0) == 1  # the time until the answer was not the client's


def test_announced_gigabyte_takes_no_memory(bystander: Any) -> None:
    served, _ = bystander
    process = psutil.Process(os.getpid())
    before = process.memory_info().rss
    socks = [connect(served) for _ in range(20)]
    for sock in socks:
        sock.sendall(INIT)
        sock.recv(1000)
        sock.sendall(b"16000000:" + b"x" * 1000)
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 21)
    assert process.memory_info().rss - before < 64 << 20
    for sock in socks:
        sock.close()


@pytest.mark.parametrize(
    "stream", [b"", b"3", INIT, INIT + FIRST, INIT + FIRST[:20], INIT + FIRST + NEXT, INIT + FIRST + LAST, FIRST]
)
def test_disconnect_in_each_state_leaves_nothing(bystander: Any, stream: bytes) -> None:
    served, _ = bystander
    for linger in (False, True):
        sock = connect(served)
        if linger:  # the connection is reset, not closed
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.sendall(stream)
        sock.close()


@pytest.mark.parametrize("is_reset", [False, True])
def test_disconnect_while_the_agent_thinks(harness: Any, *, is_reset: bool) -> None:
    served = harness()
    served.may_act.clear()
    socks = [connect(served) for _ in range(10)]
    for sock in socks:
        sock.sendall(INIT + FIRST)
    served.wait(lambda: len(served.rows) > 0)
    for sock in socks:
        if is_reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    if is_reset:  # else it may be that they only stopped writing, and wait for their answers
        served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 0)
    served.may_act.set()
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 0)
    # What was with the agent is cut; who had asked, and was gone before that, has never begun.
    served.wait(lambda: len(served.closed) == len(served.rows))


def test_five_hundred_at_once(bystander: Any) -> None:
    served, _ = bystander
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = 500 if hard == resource.RLIM_INFINITY or hard >= 2000 else 200
    socks = [connect(served) for _ in range(count)]
    for sock in socks:
        sock.sendall(INIT + FIRST)
    for sock in socks:
        found = b""
        while b"action" not in found:
            data = sock.recv(1000)
            assert data
            found += data
    for sock in socks:
        sock.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_two_thousand_connects_and_disconnects(bystander: Any) -> None:
    served, _ = bystander
    rng = random.Random(0)
    for number in range(2000):
        sock = connect(served)
        sock.sendall(rng.choice([b"", INIT, INIT + FIRST, INIT + FIRST + NEXT, b"77:", b"garbage"]))
        if number % 3 == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        if number % 100 == 99:
            with connect(served) as last:  # the server takes connections in their order
                last.sendall(INIT)
                assert last.recv(1000)
            served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 1)
            served.wait(lambda: served.pool.metrics()["rlx/active_sessions_count"] == 1)
            hub = served.server._hub
            served.wait(lambda hub=hub: hub._next_slot - len(hub._free) == 1)
    assert served.pool.num_envs <= 102, "slots are used again and again"


def test_client_that_never_reads_is_read_no_more(bystander: Any) -> None:
    served, _ = bystander
    sock = connect(served)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(0.5)
    flood = INIT + frame(encode({"command": "fly" * 100})) * 2000
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 1 << 30:
            sent += sock.send(flood)
    assert sent < 64 << 20
    sock.close()


def test_flood_of_requests_is_answered_in_time_and_bounded(bystander: Any) -> None:
    served, one = bystander
    with connect(served) as sock:
        reader = threading.Thread(target=read_all, args=(sock,))
        reader.start()
        sock.sendall(INIT + FIRST + NEXT * 5000)
        steps = one.steps
        served.wait(lambda: one.steps > steps + 20)
        sock.shutdown(socket.SHUT_RDWR)
        reader.join(60)


def test_more_than_max_sessions_are_closed_at_once(harness: Any, wire: Any) -> None:
    served = harness(admission=Admission(3, 0))
    good = [wire(served) for _ in range(3)]
    for client in good:
        client.init()
    assert wire(served).is_closed()
    good[0].close()
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 2)
    assert wire(served).init() == {"response": "ready"}
    assert good[1].update([1, 0]) == 1
    assert served.server.metrics()["rlx/refused_total"] == 1


def test_message_is_no_longer_than_a_state_can_make_it(harness: Any, wire: Any) -> None:
    served = harness()  # states of two numbers
    client = wire(served)
    client.init()
    assert client.ask(command="update_metrics", method="histogram", name="n", y=[0.5] * 20_000)["response"] == "done"
    client.sock.sendall(b"300000:")
    assert "over the limit of 262208" in client.recv()["message"]
    assert client.is_closed()


@pytest.mark.parametrize("idle_timeout_s", [600.0, None])
def test_client_without_a_session_is_cut_off_however_much_it_talks(
    harness: Any, wire: Any, monkeypatch: Any, idle_timeout_s: float | None
) -> None:
    monkeypatch.setattr("surreal.rlx.server.hub.FIRST_REQUEST_S", 1.0)
    served = harness(idle_timeout_s=idle_timeout_s)
    known, silent, talking = wire(served), wire(served), wire(served)
    known.init()
    with pytest.raises((EOFError, ConnectionError)):
        while True:
            assert talking.ask(command="fly")["response"] == "error"
    assert silent.is_closed()
    assert known.update([1, 0]) == 1


def test_oldest_stranger_gives_way_to_a_newcomer(harness: Any, wire: Any) -> None:
    served = harness(admission=Admission(3, 0))
    known, first, second = wire(served), wire(served), wire(served)
    known.init()
    first.sock.sendall(b"60000:")
    served.wait(lambda: len(served.server._hub.strangers) == 2)
    newcomer = wire(served)
    assert newcomer.init() == {"response": "ready"}
    assert first.is_closed() or second.is_closed()
    assert wire(served).init() == {"response": "ready"}
    assert first.is_closed() and second.is_closed()
    assert wire(served).is_closed()  # those who play stay
    assert known.update([1, 0]) == newcomer.update([1, 0]) == 1


def test_handshakes_of_tls_are_strangers_too(harness: Any, wire: Any, certificate: tuple[Path, Path]) -> None:
    served = harness(admission=Admission(2, 0), tls=load_tls(*certificate))
    silent = [wire(served) for _ in range(5)]
    assert all(each.is_closed() for each in silent[:3])
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 2)
    silent[3].sock.sendall(b"no handshake")
    assert silent[3].is_closed()
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 1)


def test_half_messages_are_counted_until_they_are_gone(harness: Any, wire: Any) -> None:
    served = harness(limits=Limits())
    hub = served.server._hub
    clients = [wire(served) for _ in range(3)]
    for client in clients:
        client.init()
        client.sock.sendall(b"1000000:" + b"x" * 600_000)
    served.wait(lambda: hub.buffered_bytes() == 3 * 600_008)
    for client in clients:
        client.close()
    served.wait(lambda: hub.buffered_bytes() == 0)


def test_without_memory_nobody_is_admitted(harness: Any, wire: Any) -> None:
    available = [1 << 40]
    admission = Admission(None, 1 << 20, read_used=lambda: 0, read_available=lambda: available[0])
    served = harness(admission=admission)
    first = wire(served)
    assert first.init() == {"response": "ready"}
    available[0] = 0
    time.sleep(0.6)
    assert wire(served).is_closed()
    assert first.update([1, 0]) == 1


def test_limits_of_the_server_hold(harness: Any, wire: Any) -> None:
    served = harness(limits=Limits(max_bytes=1000, max_items=50, max_depth=4))
    for state in (np.zeros(2000, np.uint8), list(range(60)), [[[[[1]]]]]):
        client = wire(served)
        client.init()
        assert "limit" in client.ask(command="update", state=state)["message"]
        assert client.is_closed()


def test_server_that_closes_lets_everyone_go(harness: Any, wire: Any) -> None:
    served = harness()
    clients = [wire(served) for _ in range(10)]
    for client in clients:
        client.init()
        client.update([1, 0])
    served.server.close()
    assert all(client.is_closed() for client in clients)
    served.wait(lambda: sorted(served.closed) == list(range(10)))
