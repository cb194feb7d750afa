"""`ForwardedLog`: passes what a redis-server prints on to stderr, and keeps the last lines for error messages."""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import IO

_KEPT_LINES = 8
_JOIN_TIMEOUT_S = 2.0


class ForwardedLog:
    """The output of one server process.

    Args:
        pipe: that the process writes to.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._forward, name="redis/log", daemon=True)
        self._thread.start()

    def tail(self) -> str:
        """Return the last lines of a process that has ended, "" if it printed none."""
        self._thread.join(_JOIN_TIMEOUT_S)
        return "".join(self._lines).rstrip()

    def _forward(self) -> None:
        with self._pipe:
            for line in self._pipe:
                text = line.decode(errors="replace")
                self._lines.append(text)
                sys.stderr.write(text)
                sys.stderr.flush()
