"""The first bytes of a connection tell netstrings from HTTP, in whatever pieces they come."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest


def read_to_end(sock: socket.socket) -> bytes:
    found = b""
    while data := sock.recv(65536):
        found += data
    return found


@pytest.mark.parametrize("start", [b"hello", b"GETS", b"G:", b"get / HTTP/1.1\r\n\r\n", b"Z", b"{"])
def test_what_is_neither_gets_an_error_at_once(harness: Any, wire: Any, start: bytes) -> None:
    served = harness()
    client = wire(served)
    client.sock.sendall(start)  # and nothing more: it does not wait for a line's end, or the peer's
    assert client.recv()["response"] == "error"
    assert client.is_closed()


@pytest.mark.parametrize(
    "pieces",
    [(b"G", b"ET /health HTTP/1.1\r\n\r\n"), (b"GE", b"T", b" /health HTTP/1.1\r\n\r\n")],
    ids=["two", "three"],
)
def test_http_is_known_in_pieces(harness: Any, wire: Any, pieces: tuple[bytes, ...]) -> None:
    served = harness()
    sock = wire(served).sock
    sent = b""
    for piece in pieces[:-1]:
        sock.sendall(piece)
        sent += piece
        served.wait(lambda sent=sent: [one._start for one in served.server._hub.connections] == [sent])
    sock.sendall(pieces[-1])
    assert read_to_end(sock).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_methods_of_http_are_answered_in_http(harness: Any, wire: Any, method: str) -> None:
    sock = wire(harness()).sock
    sock.sendall(f"{method} /nothing HTTP/1.1\r\n\r\n".encode())
    assert read_to_end(sock).startswith(b"HTTP/1.1 404 ")


def test_without_the_websockets_package_http_is_refused_with_advice_and_tcp_works(
    harness: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "surreal.rlx.server.connections.websocket", None)
    served = harness()
    sock = wire(served).sock
    sock.sendall(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
    answer = read_to_end(sock)
    assert answer.startswith(b"HTTP/1.1 501 ")
    assert b"pip install -e '.[ws]'" in answer
    assert wire(served).init() == {"response": "ready"}
