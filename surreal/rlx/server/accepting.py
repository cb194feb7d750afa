"""`Acceptor`: accepts a few new connections at a time, and detects their protocol.

The first bytes of a connection tell: a method and a space begin an HTTP request, all else is for the netstring reader,
to accept or to refuse. Until `init` is answered with `ready`, a connection is a stranger: see `Hub.make_room`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Sequence
from functools import partial

from surreal.base.errors import describe_os_error
from surreal.rlx.server.connections.connection import BaseConnection
from surreal.rlx.server.connections.tcp import TcpConnection
from surreal.rlx.server.hub import Hub

logger = logging.getLogger(__name__)

#: Connections that the system holds until they are taken.
_BACKLOG = 1024
#: Connections that are taken at a time.
_BATCH = 8
#: What strangers are charged for a connection, from its opening to its end, s: 700 in a second, at most.
_COST_S = 0.0005
#: Time until the next attempt where none can be taken, and between two warnings of that, s.
_RETRY_S = 0.5
_WARNING_INTERVAL_S = 60.0
_HANDSHAKE_TIMEOUT_S = 10.0

#: What a request to HTTP begins with.
_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")

_NO_WEBSOCKET = (
    b"HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"this server has no WebSocket: run pip install -e '.[ws]' in its clone\n"
)


class Acceptor:
    """Listens on sockets, on the event loop's thread. asyncio's own way to accept logs each failure and takes as many
    connections at once as there are, while the clients that play wait: here all new connections are charged to the
    account of strangers, and wait with them.
    """

    def __init__(self, hub: Hub, listeners: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._listeners = listeners
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned_s = -_WARNING_INTERVAL_S
        for listener in listeners:
            listener.listen(_BACKLOG)
            self._resume(listener)

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.remove_reader(listener)
                listener.close()

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._take, listener)

    def _take(self, listener: socket.socket) -> None:
        account, clock = self._hub.strangers_account, self._hub.turns.clock
        for _ in range(_BATCH):
            if pause_s := account.wait_s(clock()):
                break
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._warn(error)
                pause_s = _RETRY_S
                break
            account.charge(_COST_S, clock())
            self._open(sock)
        else:
            return
        self._loop.remove_reader(listener)
        self._loop.call_later(pause_s, self._resume, listener)

    def _open(self, sock: socket.socket) -> None:
        if not self._hub.make_room():
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        newcomer = Newcomer(self._hub, sock)
        self._hub.add(newcomer)
        task = self._loop.create_task(self._connect(newcomer, sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, newcomer: Newcomer, sock: socket.socket) -> None:
        timeout_s = None if self._tls is None else _HANDSHAKE_TIMEOUT_S
        try:
            await self._loop.connect_accepted_socket(
                lambda: newcomer, sock, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:
            logger.debug("a connection was not made: %s", error)
            self._hub.discard(newcomer)
            sock.close()

    def _warn(self, error: OSError) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s >= _WARNING_INTERVAL_S:
            self._warned_s = now_s
            logger.warning(
                "the RLX server cannot take connections: %s; raise the limit of open files (`ulimit -n`), or lower "
                "rlx.max_sessions",
                describe_os_error(error),
            )


class Newcomer(asyncio.Protocol):
    """A connection of a kind that is not known yet; see `surreal.rlx.server.hub.Connection`."""

    is_known = False
    is_busy = False

    def __init__(self, hub: Hub, sock: socket.socket) -> None:
        self.opened_s = self.heard_s = time.monotonic()
        self._hub = hub
        self._start = b""
        self._transport: asyncio.Transport | None = None
        # Until there is a transport, the handshake of TLS holds the socket; it ends when nothing more can come.
        self._cut = partial(sock.shutdown, socket.SHUT_RDWR)

    def buffered_bytes(self) -> int:
        return len(self._start)

    def close(self) -> None:
        if self._transport is None:
            self.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            return
        try:
            self._cut()
        except OSError as error:
            logger.debug("the peer is gone already: %s", error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"{transport} is not a stream")
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._hub.discard(self)

    def data_received(self, data: bytes) -> None:
        transport, hub = self._transport, self._hub
        if transport is None or transport.is_closing():
            return
        self._start += data
        data = self._start
        if any(method.startswith(data) for method in _METHODS if len(data) < len(method)):
            return  # too little to tell
        connection = self._known(data, transport)
        if connection is None:
            transport.write(_NO_WEBSOCKET)
            transport.close()
            return
        connection.opened_s = self.opened_s
        hub.discard(self)
        hub.add(connection)
        transport.set_protocol(connection)
        hub.poller.add(connection)
        connection.data_received(data)

    def _known(self, data: bytes, transport: asyncio.Transport) -> BaseConnection | None:
        if not data.startswith(_METHODS):
            return TcpConnection(self._hub, transport)
        try:
            from surreal.rlx.server.connections.websocket import WebSocketConnection
        except ImportError:
            return None
        return WebSocketConnection(self._hub, transport)
