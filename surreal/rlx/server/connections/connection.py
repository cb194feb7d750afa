"""The base of TCP and WebSocket connections: time, turns, flow control, and the order of replies."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

from surreal.rlx.server.hub import Hub
from surreal.rlx.server.polling import TURN_REQUESTS, TURN_S, Account

#: Requests that may wait behind one that waits for an action; beyond it, nothing more is read.
MAX_BACKLOG = 64


class BaseConnection(asyncio.BufferedProtocol, ABC):
    """One admitted connection."""

    def __init__(self, hub: Hub, transport: asyncio.Transport) -> None:
        self.hub = hub
        self.transport = transport
        self.opened_s = self.heard_s = time.monotonic()  #: see `surreal.rlx.server.hub.Connection`
        self.is_known = False
        self._account = Account()
        self._is_reading = True
        self._is_write_blocked = False
        self._is_queued = False
        self._is_closing = False
        self._has_eof = False

    @property
    def owes_token(self) -> bool:
        """Whether its next request must be an `init` with a token."""
        return self.hub.settings.needs_token and not self.is_known

    # -- what a kind of connection defines ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether a session waits for its action."""

    @abstractmethod
    def end_sessions(self) -> None:
        """Close all sessions of this connection."""

    @abstractmethod
    def backlog_size(self) -> int:
        """Number of requests that wait behind another."""

    @abstractmethod
    def buffered_bytes(self) -> int:
        """See `surreal.rlx.server.hub.Connection`."""

    @abstractmethod
    def accept(self, data: bytes) -> None:
        """Queue received bytes until they are processed."""

    @abstractmethod
    def has_work(self) -> bool:
        """Whether something can be done now, without an action."""

    @abstractmethod
    def work(self) -> bool:
        """Process one request; returns False if it was a step, which now waits for its action."""

    def finish_turn(self) -> None:
        """Act on the work of a turn, such as writing replies; by default nothing."""

    # -- turns ---------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Process received bytes and the requests in them."""
        if self._is_closing:
            return
        started_s = self.hub.turns.clock()
        self.accept(data)
        if self._is_queued:
            return
        if not self.is_known and self.hub.strangers_account.owes(started_s):
            self.queue()
            self.adjust_reading()
        else:
            self._work_off(started_s, is_charged=not self.has_work())

    def attend(self) -> None:
        """Process the requests that have arrived, unless the connection has to wait for its turn."""
        if not self._is_queued:
            self.take_turn()

    def take_turn(self) -> None:
        self._is_queued = False
        if not self._is_closing:
            self._work_off(self.hub.turns.clock(), is_charged=False)

    def _work_off(self, started_s: float, *, is_charged: bool) -> None:
        turns, now_s = self.hub.turns, started_s
        for _ in range(TURN_REQUESTS):
            if not self._can_work() or now_s - started_s > TURN_S:
                break
            is_charged = self.work() or is_charged
            now_s = turns.clock()
        self.finish_turn()
        if self._is_closing:
            return
        owes = is_charged and self._charge(started_s)
        if owes or self._can_work():
            self.queue()
        self.adjust_reading()

    def queue(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            self.hub.turns.put(self)

    def _charge(self, started_s: float) -> bool:
        """Charge the time since then to this connection; returns whether it has had more than its share."""
        now_s = self.hub.turns.clock()
        account = self._account if self.is_known else self.hub.strangers_account
        owes = account.charge(now_s - started_s, now_s)
        if owes:
            self.hub.turns.charge(now_s - started_s)
        return owes

    def _can_work(self) -> bool:
        # A peer that does not read its replies, or has gone, gets no more of them.
        if self._is_closing or self._is_write_blocked or self.transport.is_closing():
            return False
        return self.has_work()

    # -- the transport -------------------------------------------------------------------------------------------------

    def become_known(self) -> None:
        """Record that `init` was answered with `ready`."""
        self.is_known = True
        self.hub.strangers.pop(self, None)

    def hear(self) -> None:
        self.heard_s = time.monotonic()

    def close(self) -> None:
        """Close after pending replies are sent; further input is ignored."""
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

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self.hub.poller.remove(self)
        self.end_sessions()
        self.hub.discard(self)
        self.hub.strangers_account.inherit(self._account, self.hub.turns.clock())

    def pause_writing(self) -> None:
        self._is_write_blocked = True
        self.adjust_reading()

    def resume_writing(self) -> None:
        self._is_write_blocked = False
        self.attend()

    def adjust_reading(self) -> None:
        """Read while the peer reads as well, has not exceeded its share, and is not too far ahead."""
        should_read = not self._is_write_blocked and not self._is_queued and self.backlog_size() < MAX_BACKLOG
        if should_read != self._is_reading and not self._has_eof and not self.transport.is_closing():
            self._is_reading = should_read
            if not should_read:
                if not self.hub.poller.remove(self):
                    self.transport.pause_reading()
            elif not self.hub.poller.add(self):
                self.transport.resume_reading()
