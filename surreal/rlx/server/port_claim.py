"""Makes sure that the servers which share a port of this machine belong together.

With SO_REUSEPORT the system spreads connections over all processes of a user that listen on a port, whatever they are:
two runs on one port would silently share their clients. So each process that shares a port holds a locked file, which
names the owner. The system releases the lock with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from surreal.rlx.protocol.errors import RlxServerError

_ATTEMPTS = 20
_WAIT_S = 0.02
_MAX_OWNER_BYTES = 4096


class PortClaim:
    """A share in a port, which `close` releases; raises `RlxServerError` if it is another owner's.

    Args:
        port: > 0; all addresses of the machine count as one.
        owner: name of the servers' owner; servers with the same one share the port.
        is_bound: whether this process has bound the port already; otherwise the first that claims it makes sure that
            no other process has.
    """

    def __init__(self, host: str, port: int, owner: str, *, is_bound: bool = False) -> None:
        self._path = Path(tempfile.gettempdir()) / f"surreal-rlx-{os.getuid()}-port-{port}"
        self._file = -1
        try:
            for _ in range(_ATTEMPTS):
                if self._try(host, port, owner, is_bound=is_bound):
                    return
                # The holder may be about to end, or may not have written its name yet.
                time.sleep(_WAIT_S * (0.5 + random.random()))
            other, own = self._owner() or "another server", owner or "this server"
            raise RlxServerError(f"port {port} belongs to {other}, and {own} needs another port")
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Release the port; may be called twice. The last process removes the file."""
        if self._file >= 0:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current():
                    self._path.unlink()
        self._leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try(self, host: str, port: int, owner: str, *, is_bound: bool) -> bool:
        """Hold the file together with others of the same owner; returns whether it is so."""
        self._leave()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if os.fstat(self._file).st_uid != os.getuid():
            raise RlxServerError(f"{self._path} is not a file of this user; remove it, or set TMPDIR to another folder")
        with suppress(BlockingIOError):
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_bound:
                _check_free(host, port)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, owner.encode()[:_MAX_OWNER_BYTES], 0)
        # The lock changes hands here, so that the name is read again; and the file may have been taken away before.
        fcntl.flock(self._file, fcntl.LOCK_SH)
        return self._is_current() and self._owner().encode() == owner.encode()[:_MAX_OWNER_BYTES]

    def _is_current(self) -> bool:
        """Whether the open file is still the one at its path."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _owner(self) -> str:
        return os.pread(self._file, _MAX_OWNER_BYTES, 0).decode(errors="replace")

    def _leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _check_free(host: str, port: int) -> None:
    """Bind the port for a moment without sharing it."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                # Connections that ended a moment ago do not block the port.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        raise RlxServerError(f"port {port} of {host} cannot be had: {error}") from error
