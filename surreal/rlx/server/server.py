"""`RlxServer`: accepts environments over TCP and WebSocket on one port, in its own thread.

pool = RlxEnvPool(action_space, observation_space)
with RlxServer(pool, ServerSettings(port=7001)) as server:
    loop = AgentLoop(pool, agent, sender)
    while not stop.is_set():
        loop.step()
        server.check()
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import ExitStack, suppress
from typing import Self

from surreal.base.errors import describe_os_error
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.protocol.errors import RlxServerError
from surreal.rlx.server.accepting import Acceptor
from surreal.rlx.server.hub import Hub
from surreal.rlx.server.port_claim import PortClaim
from surreal.rlx.server.settings import ServerSettings

logger = logging.getLogger(__name__)

_SWEEP_INTERVAL_S = 0.5
#: How long connections may take to send what is on its way when the server closes, s.
_DRAIN_S = 0.5
_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 5.0


class RlxServer:
    """See above. The constructor neither listens nor starts a thread."""

    def __init__(self, pool: RlxEnvPool, settings: ServerSettings) -> None:
        self.port = settings.port  #: port of the server; known after `start`
        self._pool = pool
        self._settings = settings
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hub: Hub | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Listen; returns when clients can connect."""
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
        """Raise the error that ended the server's thread, as the cause of an `RlxServerError`."""
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
            acceptor = Acceptor(hub, await self._bind(stack), settings.tls)
            self._ready.set()
            try:
                while not self._stop.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), _SWEEP_INTERVAL_S)
                    hub.sweep()
            finally:
                acceptor.close()
                await self._close_connections(hub)
                hub.poller.close()

    async def _bind(self, stack: ExitStack) -> list[socket.socket]:
        settings = self._settings

        def claim(*, is_bound: bool) -> None:
            if settings.reuses_port:
                stack.enter_context(PortClaim(settings.host, self.port, settings.owner, is_bound=is_bound))

        if settings.port:
            claim(is_bound=False)
        # It finds the addresses of the host, and binds them; the acceptor listens.
        server = await asyncio.get_running_loop().create_server(
            asyncio.Protocol, settings.host, settings.port, reuse_port=settings.reuses_port or None, start_serving=False
        )
        listeners = [sock.dup() for sock in server.sockets]
        server.close()
        self.port = listeners[0].getsockname()[1]
        if not settings.port:
            claim(is_bound=True)
        return listeners

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
