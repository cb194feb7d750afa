"""Reading sockets in turns, so that no client takes more than its share."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

#: Pieces of work (requests, frames of a WebSocket) that a connection does at a time; more makes floods cheaper to
#: answer, and everyone else wait longer.
TURN_REQUESTS = 32
#: Time after which a turn ends, s.
TURN_S = 0.00025
#: Time that is left to other connections after a turn, as a multiple of the turn's time.
_REST = 2.0
#: Rest that a connection may owe before it has to queue, s: what usual clients do now and then is done at once.
_ALLOWANCE_S = 0.002


class Queued(Protocol):
    """A connection as this module uses it."""

    def take_turn(self) -> None:
        """Process as many requests as fit into a turn, and queue again if more are left."""


class Account:
    """The time that one connection owes the others."""

    __slots__ = ("_rested_s",)

    def __init__(self) -> None:
        self._rested_s = 0.0  # when it will have rested enough

    def charge(self, spent_s: float, now_s: float) -> bool:
        """Record time that the connection used until now; returns whether it owes too much."""
        self._rested_s = max(self._rested_s, now_s - spent_s) + (1 + _REST) * spent_s
        return self.owes(now_s)

    def owes(self, now_s: float) -> bool:
        return self.wait_s(now_s) > 0

    def wait_s(self, now_s: float) -> float:
        """Return the time until it owes no more than it may, s."""
        return max(0.0, self._rested_s - now_s - _ALLOWANCE_S)

    def inherit(self, other: Account, now_s: float) -> None:
        """Take over the debt of another connection."""
        self._rested_s = max(self._rested_s, now_s) + max(0.0, other._rested_s - now_s)


class Turns:
    """The queue of one server, on the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._loop = loop
        self._queue: deque[Queued] = deque()
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, connection: Queued) -> None:
        """Queue a connection that is not in the queue."""
        self._queue.append(connection)
        self._wait()

    def charge(self, spent_s: float) -> None:
        """Record time spent on connections of the queue, which delays the next turn."""
        self._next_s = max(self._next_s, self.clock()) + _REST * spent_s

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(0.0, self._next_s - self.clock()), self._give_turn)

    def _give_turn(self) -> None:
        self._timer = None
        if self.clock() >= self._next_s:
            self._queue.popleft().take_turn()
        if self._queue:
            self._wait()


class Polled(Protocol):
    """A connection as this module uses it."""

    transport: asyncio.Transport

    def buffer_updated(self, count: int) -> None:
        """Take so many bytes that were read into the buffer."""


class Poller:
    """Reads for its connections into `buffer`, to be taken before the next read; on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> None:
        self._loop = loop
        self._buffers = (buffer,)
        self._connections: dict[int, Polled] = {}
        self._epoll = select.epoll() if sys.platform == "linux" else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._read)

    def add(self, connection: Polled) -> bool:
        """Read for a connection from now on; returns False if that is left to asyncio."""
        transport = connection.transport
        sock = transport.get_extra_info("socket")
        if (
            self._epoll is None
            or sock is None
            or transport.is_closing()
            or transport.get_extra_info("sslcontext") is not None
        ):
            return False
        transport.pause_reading()
        fd = sock.fileno()
        self._connections[fd] = connection
        self._epoll.register(fd, select.EPOLLIN)
        return True

    def remove(self, connection: Polled) -> bool:
        """Stop reading a connection before its socket is closed, and return whether it had been read here."""
        sock = connection.transport.get_extra_info("socket")
        if self._epoll is None or sock is None or self._connections.pop(sock.fileno(), None) is None:
            return False
        self._epoll.unregister(sock.fileno())
        return True

    def close(self) -> None:
        self._connections.clear()
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _read(self) -> None:
        connections, buffers = self._connections, self._buffers
        for fd, _ in self._epoll.poll(0) if self._epoll is not None else ():
            connection = connections.get(fd)
            if connection is None:  # what another one sent has ended it
                continue
            try:
                count = os.readv(fd, buffers)
                if count:
                    connection.buffer_updated(count)
                else:
                    # The end of the stream: asyncio finds it too, and handles it.
                    self.remove(connection)
                    connection.transport.resume_reading()
            except BlockingIOError:
                continue
            except Exception as error:
                self.remove(connection)
                connection.transport.abort()
                if not isinstance(error, OSError):  # a mistake in here, which must not end the others
                    self._loop.call_exception_handler({"message": "a connection failed", "exception": error})
