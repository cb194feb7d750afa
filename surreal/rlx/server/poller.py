"""Reads the sockets of many connections in one go.

asyncio calls back for each socket by itself, through half a dozen functions; for small messages that is as much work as
all that is done with them. Here one callback reads all sockets that have something. Everything else about a connection
stays asyncio's, and so does reading its end, reading under TLS, and reading on systems without epoll.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from typing import Protocol


class Polled(Protocol):
    """What is needed of a connection."""

    transport: asyncio.Transport

    def buffer_updated(self, count: int) -> None:
        """Take so many bytes that were read into the buffer."""


class Poller:
    """Reads for its connections, on the event loop's thread.

    Args:
        loop: of the server's thread.
        buffer: what a socket has is read into here, and must be taken before the next is read.
    """

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
        """Leave a connection alone, before its socket is closed; returns whether it had been read."""
        sock = connection.transport.get_extra_info("socket")
        if self._epoll is None or sock is None or self._connections.pop(sock.fileno(), None) is None:
            return False
        self._epoll.unregister(sock.fileno())
        return True

    def close(self) -> None:
        """Read no more."""
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
                    # The end: asyncio will come upon it too, and knows what to do.
                    self.remove(connection)
                    connection.transport.resume_reading()
            except BlockingIOError:
                continue
            except Exception as error:
                self.remove(connection)
                connection.transport.abort()
                if not isinstance(error, OSError):  # a mistake in here, which must not end the others
                    self._loop.call_exception_handler({"message": "a connection failed", "exception": error})
