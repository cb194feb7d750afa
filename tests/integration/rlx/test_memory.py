"""What a connection held is freed when it is lost: without the garbage collector, which may come much later."""

from __future__ import annotations

import gc
import socket
import struct
import warnings
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from websockets.protocol import Protocol

from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.errors import Limits
from surreal.rlx.protocol.framing import frame
from surreal.rlx.server.accepting import Newcomer
from surreal.rlx.server.connections.connection import BaseConnection

INIT = encode({"command": "init"})
FIRST = encode({"command": "update", "reward": None, "state": np.ones(2, np.float32), "terminal": False})
NEXT = encode({"command": "update", "reward": 1.0, "state": np.ones(2, np.float32), "terminal": False})
HALF = b"1000000:" + b"x" * 500_000
SMALL_HALF = b"60000:" + b"x" * 50_000

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
HALF_OF_A_MESSAGE = b"\x82\xff" + struct.pack(">Q", 1_000_000) + bytes(4) + b"x" * 500_000
FIRST_OF_TWO_FRAMES = b"\x02\xff" + struct.pack(">Q", 500_000) + bytes(4) + b"x" * 500_000


def web(payload: bytes) -> bytes:
    """A binary message of a client; its mask changes nothing."""
    return b"\x82\xfe" + struct.pack(">H", len(payload)) + bytes(4) + payload


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[Any]]]:
    """Connections, and protocols of WebSockets, that have been made; the collector is switched off."""
    found: list[weakref.ref[Any]] = []
    for kind in (Newcomer, BaseConnection, Protocol):

        def noting(self: Any, *args: Any, _make: Any = kind.__init__, **options: Any) -> None:
            found.append(weakref.ref(self))
            _make(self, *args, **options)

        monkeypatch.setattr(kind, "__init__", noting)
    with warnings.catch_warnings():  # garbage of earlier tests is theirs
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.disable()
    yield found
    gc.enable()


@pytest.mark.parametrize(
    "stream",
    [
        HALF, SMALL_HALF,
        frame(INIT) + HALF, frame(INIT) + frame(FIRST) + frame(NEXT) + HALF, frame(INIT) + frame(b"hello"),
        HALF + b"x" * 600_000, HALF + b"x" * 500_000 + b",999999999:", b"GET / HTTP/1.1\r\nHost: " + b"x" * 5000,
        UPGRADE + HALF_OF_A_MESSAGE, UPGRADE + FIRST_OF_TWO_FRAMES, UPGRADE + web(INIT) + HALF_OF_A_MESSAGE,
        UPGRADE + web(INIT) + web(FIRST) + HALF_OF_A_MESSAGE,
    ],
    ids=range(12),
)  # fmt: skip
def test_lost_connection_is_freed_without_the_collector(harness: Any, made: Any, stream: bytes) -> None:
    served = harness(limits=Limits())
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as sock:
        with suppress(OSError):
            sock.sendall(stream)
        served.wait(lambda: len(made) > 1)  # a connection's first object does not know yet what it is
    served.wait(lambda: all(find() is None for find in made))
