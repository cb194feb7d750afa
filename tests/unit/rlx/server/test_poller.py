"""The poller alone, on socket pairs."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from surreal.rlx.server.polling import Poller

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere asyncio reads")


class Transport:
    """What is asked of asyncio's."""

    def __init__(self, sock: socket.socket, *, is_tls: bool = False) -> None:
        self.extra = {"socket": sock, "sslcontext": object() if is_tls else None}
        self.calls: list[str] = []

    def get_extra_info(self, name: str) -> Any:
        return self.extra[name]

    def is_closing(self) -> bool:
        return "abort" in self.calls

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")


class Connection:
    """Keeps what was read."""

    def __init__(self, buffer: memoryview, *, is_tls: bool = False) -> None:
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        self.buffer, self.read, self.sock = buffer, b"", ours
        self.fake = Transport(ours, is_tls=is_tls)
        self.transport: Any = self.fake
        self.on_read: Callable[[], object] = lambda: None

    def buffer_updated(self, count: int) -> None:
        self.read += bytes(self.buffer[:count])
        self.on_read()

    def close(self) -> None:
        self.sock.close()
        self.peer.close()


class Case:
    """A poller with two connections."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.failures: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: self.failures.append(context["exception"]))
        buffer = memoryview(bytearray(64))
        self.poller = Poller(self.loop, buffer)
        self.connections = [Connection(buffer), Connection(buffer)]
        assert all(self.poller.add(connection) for connection in self.connections)

    def turn(self) -> None:
        """Let everything be read that is there."""
        for _ in range(3):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()


@pytest.fixture
def case() -> Iterator[Case]:
    found = Case()
    yield found
    found.poller.close()
    found.loop.close()
    for connection in found.connections:
        connection.close()


def test_what_comes_is_read_instead_of_by_asyncio(case: Case) -> None:
    first, second = case.connections
    first.peer.send(b"a")
    second.peer.send(b"b" * 100)
    case.turn()
    assert (first.read, second.read) == (b"a", b"b" * 100)
    assert first.fake.calls == ["pause"]


def test_removed_connection_is_left_alone_until_it_is_added_again(case: Case) -> None:
    first, _ = case.connections
    assert case.poller.remove(first)
    assert not case.poller.remove(first)
    first.peer.send(b"a")
    case.turn()
    assert first.read == b""
    assert case.poller.add(first)
    case.turn()
    assert first.read == b"a"


def test_connection_that_ends_another_in_the_same_turn(case: Case) -> None:
    first, second = case.connections
    first.on_read = lambda: case.poller.remove(second)
    second.on_read = lambda: case.poller.remove(first)
    for connection in case.connections:
        connection.peer.send(b"a")
    case.turn()
    assert first.read + second.read == b"a"


def test_end_is_left_to_asyncio(case: Case) -> None:
    first, second = case.connections
    first.peer.close()
    case.turn()
    assert first.fake.calls == ["pause", "resume"]
    assert not case.poller.remove(first)
    second.peer.send(b"b")
    case.turn()
    assert second.read == b"b"


@pytest.mark.parametrize("error", [ConnectionResetError(), RuntimeError("a mistake")])
def test_failure_ends_one_connection_only(case: Case, error: Exception) -> None:
    first, second = case.connections

    def fail() -> None:
        raise error

    first.on_read = fail
    for connection in case.connections:
        connection.peer.send(b"a")
    case.turn()
    assert first.fake.calls == ["pause", "abort"]
    assert second.read == b"a"
    assert case.failures == ([] if isinstance(error, OSError) else [error])


def test_under_tls_asyncio_reads(case: Case) -> None:
    connection = Connection(memoryview(bytearray(8)), is_tls=True)
    assert not case.poller.add(connection)
    assert connection.fake.calls == []
    connection.close()
