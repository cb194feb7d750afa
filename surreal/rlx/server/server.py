"""`RlxServer`: accepts environments over TCP and WebSocket on one port, in a thread of its own.

    pool = RlxEnvPool(action_space, observation_space)
    with RlxServer(pool, ServerSettings(port=7001)) as server:
        loop = AgentLoop(pool, agent, sender)
        while not stop.is_set():
            loop.step()
            server.check()

The first bytes of a connection tell what it is: a method and a space begin an HTTP request, all else is for the
netstring reader, to accept or to refuse.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import ExitStack, suppress
from typing import Self

from surreal.errors import describe_os_error
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.protocol.errors import RlxServerError
from surreal.rlx.server.connections.connection import BaseConnection
from surreal.rlx.server.connections.tcp import TcpConnection
from surreal.rlx.server.hub import Hub
from surreal.rlx.server.port_claim import PortClaim
from surreal.rlx.server.settings import ServerSettings

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_SWEEP_INTERVAL_S = 0.5
#: How long connections may take to send what is on its way when the server closes, s.
_DRAIN_S = 0.5
_HANDSHAKE_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0

#: What a request to HTTP begins with.
_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")

_NO_WEBSOCKET = (
    b"HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"this server has no WebSocket: run pip install -e '.[ws]' in its clone\n"
)


class RlxServer:
    """See above. The constructor neither listens nor starts a thread.

    Args:
        pool: drives the sessions.
        settings: host, port, limits and so on.

    Attributes:
        port: that it listens on; known after `start`.
    """

    def __init__(self, pool: RlxEnvPool, settings: ServerSettings) -> None:
        self.port = settings.port
        self._pool = pool
        self._settings = settings
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hub: Hub | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Listen; returns when clients can connect.

        Raises:
            RlxServerError: the address cannot be listened on.
        """
        self._thread = threading.Thread(target=self._run, name="rlx/server", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            raise RlxServerError(f"the RLX server did not start within {_START_TIMEOUT_S:.0f} s")
        if self._failure is not None:
            self._thread.join(_STOP_TIMEOUT_S)
            where = f"{self._settings.host}:{self._settings.port}"
            why = describe_os_error(self._failure) if isinstance(self._failure, OSError) else self._failure
            raise RlxServerError(f"cannot listen on {where}: {why}") from self._failure

    def check(self) -> None:
        """Raise what ended the server's thread.

        Raises:
            RlxServerError: with the thread's exception as its cause.
        """
        if self._failure is not None:
            raise RlxServerError(f"the RLX server failed: {self._failure}") from self._failure

    def close(self) -> None:
        """Close all connections, and wait for the thread; may be called twice."""
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)
            if self._thread.is_alive():
                logger.warning("the RLX server did not end within %.0f s", _STOP_TIMEOUT_S)
        self._thread = None

    def metrics(self) -> dict[str, float]:
        """Return counts of connections, requests, refusals and errors."""
        return {} if self._hub is None else self._hub.metrics()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the server's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            logger.debug("the RLX server ends", exc_info=True)
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        loop, settings = asyncio.get_running_loop(), self._settings
        self._loop, self._stop = loop, asyncio.Event()
        hub = self._hub = Hub(self._pool, settings, loop)
        with ExitStack() as stack:
            server = await self._listen(hub, stack)
            self._ready.set()
            try:
                while not self._stop.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), _SWEEP_INTERVAL_S)
                    hub.sweep()
            finally:
                server.close()
                await self._close_connections(hub)
                hub.poller.close()

    async def _listen(self, hub: Hub, stack: ExitStack) -> asyncio.Server:
        settings = self._settings

        def claim(*, is_bound: bool) -> None:
            if settings.reuses_port:
                stack.enter_context(PortClaim(settings.host, self.port, settings.owner, is_bound=is_bound))

        if settings.port:
            claim(is_bound=False)
        server = await asyncio.get_running_loop().create_server(
            lambda: _Newcomer(hub),
            settings.host,
            settings.port,
            ssl=settings.tls,
            ssl_handshake_timeout=None if settings.tls is None else _HANDSHAKE_TIMEOUT_S,
            backlog=_BACKLOG,
            reuse_port=settings.reuses_port or None,
        )
        self.port = server.sockets[0].getsockname()[1]
        if not settings.port:
            claim(is_bound=True)
        return server

    async def _close_connections(self, hub: Hub) -> None:
        for connection in list(hub.connections):
            connection.close()
        end_s = asyncio.get_running_loop().time() + _DRAIN_S
        while hub.connections and asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(0.01)
        for connection in list(hub.connections):
            connection.abort()
        while hub.connections:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # what their ends mean to the pool is handed over in the next turn


class _Newcomer(BaseConnection):
    """A connection that has not said what it is."""

    def __init__(self, hub: Hub) -> None:
        self._new_hub = hub
        self._start = b""

    @property
    def is_busy(self) -> bool:
        return False

    def backlog_size(self) -> int:
        return 0

    def buffered_bytes(self) -> int:
        return len(self._start)

    def has_work(self) -> bool:
        return False

    def end_sessions(self) -> None:
        """There are none."""

    def accept(self, data: bytes) -> None:
        self._start += data

    def work(self) -> bool:
        return False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"{transport} is no stream")
        super().__init__(self._new_hub, transport)
        if not self.hub.admits():
            self.close()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.hub.connections.add(self)
        self.hub.num_sessions += 1

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self.accept(data)
        data = self._start
        if any(method.startswith(data) for method in _METHODS if len(data) < len(method)):
            return  # too little to tell
        connection = self._known(data)
        if connection is None:
            self.transport.write(_NO_WEBSOCKET)
            self.close()
            return
        connection.opened_s = self.opened_s
        self.hub.connections.discard(self)
        self.hub.connections.add(connection)
        self.transport.set_protocol(connection)
        self.hub.poller.add(connection)
        connection.data_received(data)

    def _known(self, data: bytes) -> BaseConnection | None:
        if not data.startswith(_METHODS):
            return TcpConnection(self.hub, self.transport)
        try:
            from surreal.rlx.server.connections.websocket import WebSocketConnection
        except ImportError:
            return None
        return WebSocketConnection(self.hub, self.transport)
