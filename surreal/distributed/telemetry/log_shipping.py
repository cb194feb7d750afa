"""The bounded buffer between a process's threads and its telemetry thread, and the logging handler that fills it.

Whoever logs or reports a number only appends a line in memory: no waiting, whatever Redis does.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable

from surreal.distributed.telemetry.records import encode_log

_FORMATTER = logging.Formatter()
#: What a heartbeat says of a warning, at most.
_MAX_WARNING_CHARS = 300


class LineBuffer:
    """Encoded lines waiting to leave; the oldest are dropped, and counted, when there are too many bytes.

    Args:
        max_bytes: bound; raising it keeps more of a long outage of Redis, and costs that much memory.
    """

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; it must be >= 1")
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.dropped = 0
        # Re-entrant: a signal handler may log while this thread is inside `add`.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, lines: Iterable[bytes]) -> None:
        """Append lines; callable from any thread."""
        with self._lock:
            for line in lines:
                self._lines.append(line)
                self._bytes += len(line) + 1
            while self._bytes > self._max_bytes and self._lines:
                self._bytes -= len(self._lines.popleft()) + 1
                self.dropped += 1

    def take(self, max_bytes: int, used: int = 0) -> list[bytes]:
        """Remove and return the oldest lines that fit an entry, newlines counted.

        Args:
            max_bytes: of an entry; a longer line fits into none, and is dropped.
            used: bytes of the entry that other lines take, 0 .. max_bytes.
        """
        taken: list[bytes] = []
        room = max_bytes - used
        with self._lock:
            while self._lines:
                size = len(self._lines[0]) + 1
                if size > max_bytes:
                    self.dropped += 1
                elif size > room:
                    break
                else:
                    taken.append(self._lines[0])
                    room -= size
                self._lines.popleft()
                self._bytes -= size
            if not self._lines:
                self._bytes = 0
        return taken


class ShippingHandler(logging.Handler):
    """Puts log records into a buffer, formatted once, where they happen: their arguments may change afterwards.

    Args:
        buffer: where telemetry finds them.
        level: least severe level that is shipped.

    Attributes:
        last_warning: when the last record came that is a warning or worse, s since 1970, and its beginning. Waits are
            left out: a heartbeat names them while they last.
    """

    def __init__(self, buffer: LineBuffer, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._buffer = buffer
        self.last_warning = 0.0, ""

    def emit(self, record: logging.LogRecord) -> None:
        """Encode and append; never blocks, never raises."""
        try:
            exception = record.exc_text or ""
            if not exception and record.exc_info and record.exc_info[1] is not None:
                exception = record.exc_text = _FORMATTER.formatException(record.exc_info)
            message = record.getMessage()
            line = encode_log(
                time_s=record.created,
                level=record.levelname,
                logger=str(record.name),
                message=message,
                exception=exception,
            )
        except Exception:  # a record that cannot be formatted must not fail its caller
            self.handleError(record)
            return
        self._buffer.add((line,))
        if record.levelno >= logging.WARNING and not getattr(record, "is_wait", False):
            self.last_warning = record.created, " ".join(message.split())[:_MAX_WARNING_CHARS]
