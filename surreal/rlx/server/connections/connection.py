"""What TCP and WebSocket connections have in common: time, flow control, and the order of replies."""

from __future__ import annotations

import asyncio
import time

from surreal.rlx.server.hub import Hub

#: Requests that may wait behind one that waits for an action; beyond it, nothing more is read.
MAX_BACKLOG = 64


class BaseConnection(asyncio.BufferedProtocol):
    """One admitted connection.

    Args:
        hub: of the server.
        transport: of the connection.

    Attributes:
        opened_s, heard_s, has_spoken: see `surreal.rlx.server.hub.Connection`.
    """

    def __init__(self, hub: Hub, transport: asyncio.Transport) -> None:
        self.hub = hub
        self.transport = transport
        self.opened_s = self.heard_s = time.monotonic()
        self.has_spoken = False
        self._is_reading = True
        self._is_write_blocked = False
        self._is_closing = False

    @property
    def is_busy(self) -> bool:
        raise NotImplementedError

    def end_sessions(self) -> None:
        """Close all sessions of this connection."""
        raise NotImplementedError

    def hear(self) -> None:
        """Note that a whole request came."""
        self.heard_s = time.monotonic()
        self.has_spoken = True

    def close(self) -> None:
        """Close after what is on its way out; nothing that comes in counts any more."""
        self._is_closing = True
        self.hub.poller.remove(self)
        self.transport.close()

    def abort(self) -> None:
        """Close at once: a peer that does not read would keep `close` waiting."""
        self._is_closing = True
        self.hub.poller.remove(self)
        self.transport.abort()

    def get_buffer(self, _: int) -> memoryview:
        return self.hub.buffer

    def buffer_updated(self, count: int) -> None:
        self.data_received(bytes(self.hub.buffer[:count]))

    def data_received(self, data: bytes) -> None:
        """Take what came in."""
        raise NotImplementedError

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self.hub.poller.remove(self)
        self.end_sessions()
        if self in self.hub.connections:
            self.hub.connections.remove(self)
            self.hub.num_sessions -= 1

    def pause_writing(self) -> None:
        # A peer that does not read its replies gets no more of them.
        self._is_write_blocked = True
        self.adjust_reading()

    def resume_writing(self) -> None:
        self._is_write_blocked = False
        self.adjust_reading()

    def backlog_size(self) -> int:
        """How many requests wait behind one."""
        raise NotImplementedError

    def adjust_reading(self) -> None:
        """Read as long as the peer reads too, and does not run too far ahead."""
        should_read = not self._is_write_blocked and self.backlog_size() < MAX_BACKLOG
        if should_read != self._is_reading and not self.transport.is_closing():
            self._is_reading = should_read
            if not should_read:
                if not self.hub.poller.remove(self):
                    self.transport.pause_reading()
            elif not self.hub.poller.add(self):
                self.transport.resume_reading()
