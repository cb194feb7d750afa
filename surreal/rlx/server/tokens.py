"""`ClientTokens`: a token for each client, in a file that is read again whenever it changes.

A line of the file is `NAME: TOKEN`; blank lines and lines that begin with `#` are skipped. Without its line, or with
another token in it, a token is revoked.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Protocol

from surreal.base.system.files import read_secret
from surreal.rlx.protocol.errors import RlxError, RlxRequestError

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: A shorter token can be guessed, characters.
_SHORTEST_TOKEN = 8


class Revocable(Protocol):
    """A session that was opened with a token."""

    def refuse(self, error: RlxError) -> None:
        """Send the error, and end."""


class ClientTokens:
    """Tokens of a file, and their sessions; used on the server's thread, but for `metrics`. Raises `ValueError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._look()
        self._names = self._read()  # by the digest of the token, so that the time of a lookup reveals nothing
        self._sessions: dict[Revocable, tuple[bytes, str]] = {}

    def open(self, session: Revocable, token: str) -> bool:
        """Record a session if a client has this token, and return whether one has."""
        digest = _digest(token)
        name = self._names.get(digest)
        if name is None:
            return False
        self._sessions[session] = digest, name
        logger.info("%s begins a session", name)
        return True

    def close(self, session: Revocable) -> None:
        """Forget a session, if it was opened here."""
        _, name = self._sessions.pop(session, (b"", None))
        if name is not None:
            logger.info("a session of %s ends", name)

    def refresh(self) -> int:
        """Read the file again if it has changed, and end the sessions of revoked tokens; returns how many.

        A file that cannot be read, or has a wrong line, changes nothing.
        """
        stamp = self._look()
        if stamp == self._stamp:
            return 0
        self._stamp = stamp
        try:
            self._names = self._read()
        except ValueError as error:
            logger.error("%s; all tokens stay as they were", error)
            return 0
        logger.info("%s has changed: %d clients have a token", self._path, len(self._names))
        revoked = [(each, name) for each, (digest, name) in self._sessions.items() if digest not in self._names]
        for session, name in revoked:
            session.refuse(RlxRequestError(f"the token of {name} was revoked"))
        return len(revoked)

    def metrics(self) -> dict[str, float]:
        counts = Counter(name for _, name in list(self._sessions.values()))
        return {f"rlx/client_sessions_count/{name}": float(counts[name]) for name in self._names.values()}

    def _look(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> dict[bytes, str]:
        names: dict[bytes, str] = {}
        for number, line in enumerate(read_secret(self._path, "rlx.tokens").splitlines(), 1):
            name, colon, token = (part.strip() for part in line.partition(":"))
            if not line.strip() or line.strip().startswith("#"):
                continue
            where = f"rlx.tokens: line {number} of {self._path}"
            if not colon or _NAME.fullmatch(name) is None:
                raise ValueError(f"{where} must be NAME: TOKEN, with a name of 1 to 64 letters, digits and . _ -")
            if len(token) < _SHORTEST_TOKEN:
                raise ValueError(f"{where}: the token of {name} must have at least {_SHORTEST_TOKEN} characters")
            if name in names.values() or _digest(token) in names:
                raise ValueError(f"{where}: the name or the token of {name} occurs twice")
            names[_digest(token)] = name
        return names


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
