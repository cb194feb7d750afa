"""Transports of a client's messages: netstrings over TCP, or binary frames over a WebSocket, both optionally in TLS.

Used by `agent_proxy`. Everything here raises `OSError` when the connection is lost or a deadline has passed, and
`RlxError` when the peer sends what no RLX server sends. Blocking, for one thread at a time.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from surreal.rlx.protocol.errors import DEFAULT_LIMITS, RlxError
from surreal.rlx.protocol.framing import FrameReader, frame

#: Port of a server that was given none, RELAAX's.
DEFAULT_PORT = 7001
#: Largest reply that a client takes, in bytes; a reply is an action or a sentence.
MAX_REPLY_BYTES = DEFAULT_LIMITS.max_bytes

_SCHEMES = {
    "rlx": (False, False),
    "tcp": (False, False),
    "rlxs": (False, True),
    "ws": (True, False),
    "wss": (True, True),
}
_RECEIVE_BYTES = 1 << 16
_MAX_HANDSHAKE_BYTES = 16 << 10
_WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


@dataclass(frozen=True)
class Address:
    """The address of a server."""

    host: str  #: of the server or its balancer
    port: int
    is_websocket: bool = False  #: WebSocket instead of netstrings
    is_tls: bool = False  #: encrypted
    path: str = "/"  #: path of a WebSocket's request

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Transport(Protocol):
    """A connection as the client uses it."""

    def send(self, payload: bytes, deadline_s: float) -> None:
        """Send one payload before `time.monotonic()` reaches the deadline."""

    def receive(self, deadline_s: float) -> bytes:
        """Return the next payload."""

    def close(self) -> None:
        """Close the connection; may be called more than once."""


def parse_address(address: str | tuple[str, int]) -> Address:
    """Read `host:port`, `host`, `rlx://`, `rlxs://` (TLS), `ws://` or `wss://`; hosts of IPv6 stand in brackets."""
    if isinstance(address, tuple):
        return Address(str(address[0]), int(address[1]))
    try:
        parts = urlsplit(address if "://" in address else f"rlx://{address}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{address!r} is not an address: {error}") from None
    if parts.scheme not in _SCHEMES or not host:
        raise ValueError(f"{address!r} is not an address; write host:port, or a URL: {', '.join(sorted(_SCHEMES))}")
    is_websocket, is_tls = _SCHEMES[parts.scheme]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(host, DEFAULT_PORT if port is None else port, is_websocket, is_tls, path)


def open_transport(address: Address, deadline_s: float, *, ssl_context: ssl.SSLContext | None = None) -> Transport:
    """Connect to a server until `deadline_s`, on the clock of `time.monotonic()`.

    An `ssl_context` tells how to check the server's certificate, and turns TLS on for an address without a scheme;
    None: against the authorities that this machine trusts. Raises `OSError` if no server answers in time, or the
    certificate is not accepted, `RlxError` if the peer speaks no WebSocket.
    """
    sock = socket.create_connection((address.host, address.port), timeout=_remaining_s(deadline_s))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if address.is_tls or ssl_context is not None:
            context = ssl_context or ssl.create_default_context()
            sock = context.wrap_socket(sock, server_hostname=address.host)
        if address.is_websocket:
            return WebSocketTransport(sock, address, deadline_s)
        return TcpTransport(sock)
    except BaseException:
        sock.close()
        raise


class TcpTransport:
    """Payloads as netstrings."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._payloads: list[bytes] = []

    def send(self, payload: bytes, deadline_s: float) -> None:
        _send_all(self._sock, frame(payload), deadline_s)

    def receive(self, deadline_s: float) -> bytes:
        while not self._payloads:
            self._payloads += self._reader.feed(_receive(self._sock, deadline_s))
        return self._payloads.pop(0)

    def close(self) -> None:
        _close(self._sock)


class WebSocketTransport:
    """Payloads as binary messages of a WebSocket (RFC 6455), over a socket that it owns from now on."""

    def __init__(self, sock: socket.socket, address: Address, deadline_s: float) -> None:
        self._sock = sock
        self._buffer = bytearray()
        key = base64.b64encode(os.urandom(16))
        request = (
            f"GET {address.path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        _send_all(sock, request.encode("ascii"), deadline_s)
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _MAX_HANDSHAKE_BYTES:
                raise RlxError(f"{address} answers a WebSocket request with more than {_MAX_HANDSHAKE_BYTES} bytes")
            self._buffer += _receive(sock, deadline_s)
        status, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        expected = base64.b64encode(hashlib.sha1(key + _WEBSOCKET_GUID, usedforsecurity=False).digest())
        if status.split(b" ")[1:2] != [b"101"] or headers.get(b"sec-websocket-accept") != expected:
            raise RlxError(f"{address} is not a WebSocket server: {status[:80].decode('latin-1')}")

    def send(self, payload: bytes, deadline_s: float) -> None:
        self._send_frame(_BINARY, payload, deadline_s)

    def receive(self, deadline_s: float) -> bytes:
        message = bytearray()
        while True:
            opcode, is_final, data = self._receive_frame(deadline_s)
            if opcode == _CLOSE:
                raise ConnectionResetError(f"the server closed the WebSocket: {_close_reason(data)}")
            if opcode == _PING:
                self._send_frame(_PONG, data, deadline_s)
            elif opcode in (_BINARY, _TEXT, _CONTINUATION):
                message += data
                if len(message) > MAX_REPLY_BYTES:
                    raise RlxError(f"a reply is longer than {MAX_REPLY_BYTES} bytes")
                if is_final:
                    return bytes(message)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the other side may have closed it already
            self._send_frame(_CLOSE, struct.pack(">H", 1000), time.monotonic() + 0.5)
        _close(self._sock)

    def _send_frame(self, opcode: int, data: bytes, deadline_s: float) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack(">BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
        mask = os.urandom(4)
        keys = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
        masked = (int.from_bytes(data, "little") ^ keys).to_bytes(size, "little")
        _send_all(self._sock, head + mask + masked, deadline_s)

    def _receive_frame(self, deadline_s: float) -> tuple[int, bool, bytes]:
        first, second = self._take(2, deadline_s)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(self._take(2, deadline_s), "big")
        elif size == 127:
            size = int.from_bytes(self._take(8, deadline_s), "big")
        if size > MAX_REPLY_BYTES or second & 0x80:
            raise RlxError(f"the server sent a WebSocket frame of {size} bytes, more than {MAX_REPLY_BYTES}, or masked")
        return first & 0x0F, bool(first & 0x80), self._take(size, deadline_s)

    def _take(self, size: int, deadline_s: float) -> bytes:
        while len(self._buffer) < size:
            self._buffer += _receive(self._sock, deadline_s)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side may have closed it already
        sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that receives
    sock.close()


def _send_all(sock: socket.socket, data: bytes, deadline_s: float) -> None:
    sock.settimeout(_remaining_s(deadline_s))
    sock.sendall(data)


def _receive(sock: socket.socket, deadline_s: float) -> bytes:
    sock.settimeout(_remaining_s(deadline_s))
    data = sock.recv(_RECEIVE_BYTES)
    if not data:
        raise ConnectionResetError("the server closed the connection")
    return data


def _remaining_s(deadline_s: float) -> float:
    remaining = deadline_s - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("no answer in time")
    return remaining


def _close_reason(data: bytes) -> str:
    if len(data) < 2:
        return "no reason given"
    return f"{int.from_bytes(data[:2], 'big')} {data[2:].decode('utf-8', 'replace')}".strip()
