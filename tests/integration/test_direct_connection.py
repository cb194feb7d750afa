"""Commands sent together, and replies that come in pieces."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from redis.exceptions import (
    BusyLoadingError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from surreal.base.errors import CodecError
from surreal.distributed import RedisClient
from surreal.distributed.connection.direct import SMALL_BYTES, DirectConnection

LARGE = bytes(range(256)) * 4000


@pytest.fixture
def connection(client: RedisClient) -> Iterator[DirectConnection]:
    connection = DirectConnection(client)
    yield connection
    connection.close()


@pytest.mark.parametrize("most_ahead", [1, 2, 100])
def test_replies_of_all_kinds_come_in_order(client: RedisClient, connection: DirectConnection, most_ahead: int) -> None:
    name = f"surreal:{{{client.run}}}:x"
    memory = bytearray()

    def place(size: int) -> memoryview:
        memory.extend(bytes(size))
        return memoryview(memory)

    commands = [
        ("SET", name, LARGE),
        ("GET", name),
        ("STRLEN", name),
        ("GET", name + "?"),
        ("MGET", name + "?", name),
        ("GETRANGE", name, 0, SMALL_BYTES - 1),
    ]
    done, whole, length, nothing, several, small = connection.ask(*commands, most_ahead=most_ahead)
    assert (done, bytes(whole), length, nothing) == (b"OK", LARGE, len(LARGE), None)
    assert isinstance(whole, bytearray)
    assert [several[0], bytes(several[1])] == [None, LARGE]
    assert small == LARGE[:SMALL_BYTES]
    (found,) = connection.ask(("GET", name), into=place)
    assert isinstance(found, memoryview)
    assert bytes(memory) == LARGE


def test_a_command_that_is_refused_costs_the_others_nothing(client: RedisClient, connection: DirectConnection) -> None:
    name = f"surreal:{{{client.run}}}:x"
    with pytest.raises(ResponseError, match="holds what Surreal never writes"):
        connection.ask(("SET", name, "1"), ("HGET", name, "field"), ("INCR", name))
    with pytest.raises(NoScriptError):
        connection.ask(("EVALSHA", "0" * 40, 0))
    assert connection.ask(("GET", name)) == [b"2"]


def test_what_has_no_room_is_never_read(client: RedisClient, connection: DirectConnection) -> None:
    name = f"surreal:{{{client.run}}}:x"

    def refuse(size: int) -> bytearray:
        raise CodecError(f"{size} bytes")

    with pytest.raises(CodecError, match=str(len(LARGE))):
        connection.ask(("SET", name, LARGE), ("GET", name), ("GET", name), into=refuse)
    assert connection.ask(("STRLEN", name)) == [len(LARGE)]


class Talker:
    """A server that says once that it is well, and then answers with prepared bytes, a few at a time."""

    def __init__(self, answer: bytes, step: int, *, ends: bool = True) -> None:
        self._answer, self._step, self._ends = answer, step, ends
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._talk)

    def __enter__(self) -> Talker:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._may_end.set()
        self._thread.join()
        self._listener.close()

    def _talk(self) -> None:
        peer, _ = self._listener.accept()
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.recv(1 << 16)  # whether it is well
            peer.sendall(b"+PONG\r\n")
            peer.recv(1 << 16)
            for start in range(0, len(self._answer), self._step):
                peer.sendall(self._answer[start : start + self._step])
            if not self._ends:
                self._may_end.wait(20.0)


@pytest.mark.parametrize("step", [1, 7, 4096, 1 << 20])
def test_replies_may_be_cut_anywhere(step: int) -> None:
    large = LARGE[:5000]
    answer = b"*3\r\n$2\r\nok\r\n:-7\r\n*-1\r\n$5000\r\n" + large + b"\r\n$0\r\n\r\n$-1\r\n+PONG\r\n"
    with Talker(answer, step) as server, RedisClient(server.address) as client:
        replies = DirectConnection(client).ask(*[("PING",)] * 5)
        assert replies == [[b"ok", -7, None], bytearray(large), b"", None, b"PONG"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"$5000\r\nabc", RedisConnectionError),
        (b"$5", RedisConnectionError),
        (b"", RedisConnectionError),
        (b"-LOADING Redis is loading the dataset in memory\r\n", BusyLoadingError),
        (b"-READONLY You can't write against a read only replica.\r\n", ReadOnlyError),
        (b"-NOPERM this user has no permissions\r\n", NoPermissionError),
        (b"?5\r\n", InvalidResponse),
        (b"x" * 9000, InvalidResponse),
    ],
)
def test_replies_that_break_off_or_refuse_or_are_none_are_errors(answer: bytes, error: type[Exception]) -> None:
    with Talker(answer, 1 << 20) as server, RedisClient(server.address) as client, pytest.raises(error):
        DirectConnection(client).ask(("PING",))


def test_a_connection_to_where_a_hash_slot_was_is_dropped() -> None:
    with Talker(b"-MOVED 3999 127.0.0.1:6381\r\n", 64) as server, RedisClient(server.address) as client:
        connection = DirectConnection(client)
        with pytest.raises(MovedError):
            connection.ask(("PING",))
        assert not client.redis.connection_pool._in_use_connections  # type: ignore[attr-defined]
        assert all(idle._sock is None for idle in client.redis.connection_pool._available_connections)  # type: ignore[attr-defined]


def test_a_server_that_stops_in_the_middle_is_not_waited_for_for_ever() -> None:
    with (
        Talker(b"$5000\r\nabc", 64, ends=False) as server,
        RedisClient(server.address, timeout_s=0.2) as client,
        pytest.raises(RedisTimeoutError, match="no answer in time"),
    ):
        DirectConnection(client).ask(("PING",))
