"""Shipping of logs and metrics: bounded buffers, the logging handler that fills one, and the round trip to Redis.

A thread that logs or reports a number only appends a line in memory, and never waits for Redis. Once an interval, the
telemetry thread sends a few log stream entries and the heartbeat, and receives the run's stop reason and the server's
time. An entry whose outcome is unknown (the connection broke) is sent again under its number; the collector drops the
copy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from surreal.base.errors import CodecError
from surreal.base.ranges import PositiveInt, checked
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import is_out_of_memory, is_transient
from surreal.distributed.telemetry.heartbeats import FORGET_S, Heartbeat
from surreal.distributed.telemetry.records import MAX_ENTRY_BYTES, encode_log, entry_fields

logger = logging.getLogger(__name__)

_FORMATTER = logging.Formatter()
#: Most characters of a warning in a heartbeat.
_MAX_WARNING_CHARS = 300


class LineBuffer:
    """Encoded lines that wait to be sent; beyond `max_bytes`, the oldest are dropped and counted."""

    @checked
    def __init__(self, max_bytes: PositiveInt) -> None:
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self.dropped = 0
        # Re-entrant: a signal handler may log while this thread is inside `add`.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, lines: Iterable[bytes]) -> None:
        """Append lines. Thread-safe."""
        with self._lock:
            for line in lines:
                self._lines.append(line)
                self._bytes += len(line) + 1
            while self._bytes > self._max_bytes and self._lines:
                self._bytes -= len(self._lines.popleft()) + 1
                self.dropped += 1

    def take(self, max_bytes: int, used: int = 0) -> list[bytes]:
        """Remove and return the oldest lines that fit into an entry of `max_bytes` with `used` bytes, newlines counted.

        A line longer than an entry is dropped.
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
    """Puts log records into a buffer, formatted at once, because their arguments may change afterwards."""

    def __init__(self, buffer: LineBuffer) -> None:
        super().__init__(logging.INFO)
        self._buffer = buffer
        #: time (s since 1970) and beginning of the last record that is a warning or worse. Waits are left out, because
        #: a heartbeat names them while they last.
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


#: Approximate bounds of the run's log stream: entries, and bytes if all entries had the size of the last one.
STREAM_ENTRIES, STREAM_BYTES = 20_000, 32 << 20
#: Most entries of one round trip, so that a backlog shrinks faster than it grows.
MAX_BATCHES = 4
#: Clocks that differ by less count as equal, s: the duration of a round trip must not move a process's clock.
CLOCK_TOLERANCE_S = 0.1


class _Batch(NamedTuple):
    sequence: int
    lines: bytes
    line_count: int


class Shipper:
    """Sends the lines of two buffers, metrics before logs, which may be many; used by one thread at a time."""

    def __init__(
        self, client: RedisClient, *, process: str, name: str, role: str, logs: LineBuffer, values: LineBuffer
    ) -> None:
        self._client = client
        self._identity = {"process": process, "name": name, "role": role}
        self._process = process
        self._logs, self._values = logs, values
        self._flight: list[_Batch] = []
        self._sequence = 0
        self._is_first_round = True
        self._has_trouble = False
        self.stop_reason: str | None = None  #: why the run ends; None while it continues
        self.offset_s = 0.0  #: difference of the server's clock to this machine's
        self.refused = 0  #: number of lines that the server will never accept
        self.error_count = 0  #: number of round trips that failed, in whole or in part
        self.is_connected = False  #: whether the last round trip succeeded

    @property
    def has_backlog(self) -> bool:
        return bool(self._flight or len(self._logs) or len(self._values))

    def ship(self, heartbeat: Heartbeat) -> bool:
        """Make the round trip; return whether the server took everything. Redis errors are counted, not raised."""
        self._fill_flight()
        keys = self._client.run_keys
        pipeline = self._client.redis.pipeline(transaction=False)
        for batch in self._flight:
            fields: Any = entry_fields(
                **self._identity, sequence=batch.sequence, offset_s=self.offset_s, lines=batch.lines
            )
            kept = min(STREAM_ENTRIES, STREAM_BYTES // len(batch.lines))
            pipeline.xadd(keys.log, fields, maxlen=kept, approximate=True)
        beat: Any = heartbeat.encode()  # redis-py's annotation knows text only
        pipeline.hset(keys.processes, self._process, beat)
        pipeline.get(keys.stop)
        pipeline.time()
        if self._is_first_round:
            pipeline.hgetall(keys.processes)
        try:
            replies = pipeline.execute(raise_on_error=False)
        except RedisError as error:
            self.note_trouble("Redis is away, logs and metrics wait: %s", error)
            return False
        return self._digest(replies)

    def note_trouble(self, message: str, *args: object, exc_info: bool = False) -> None:
        """Count a failure; only the first of several in a row is a warning."""
        self.error_count += 1
        self.is_connected = False
        logger.log(logging.DEBUG if self._has_trouble else logging.WARNING, message, *args, exc_info=exc_info)
        self._has_trouble = True

    def _fill_flight(self) -> None:
        while len(self._flight) < MAX_BATCHES:
            lines = self._values.take(MAX_ENTRY_BYTES)
            lines += self._logs.take(MAX_ENTRY_BYTES, used=sum(len(line) + 1 for line in lines))
            if not lines:
                break
            self._sequence += 1
            self._flight.append(_Batch(self._sequence, b"\n".join(lines), len(lines)))

    def _digest(self, replies: list[Any]) -> bool:
        count = len(self._flight)
        errors = []
        remaining = []
        for batch, reply in zip(self._flight, replies, strict=False):
            if isinstance(reply, RedisError):
                errors.append(reply)
                if is_out_of_memory(reply) or is_transient(reply):
                    remaining.append(batch)
                else:
                    self.refused += batch.line_count
        self._flight = remaining
        heartbeat, stop, server_time = replies[count : count + 3]
        if isinstance(heartbeat, RedisError):
            errors.append(heartbeat)
        if isinstance(stop, bytes) and self.stop_reason is None:
            self.stop_reason = stop[:1000].decode("utf-8", "replace")
        if isinstance(server_time, tuple):  # the next heartbeat replaces one with a wrong time
            offset_s = server_time[0] + server_time[1] / 1e6 - time.time()
            if abs(offset_s - self.offset_s) > CLOCK_TOLERANCE_S:
                self.offset_s = offset_s if abs(offset_s) > CLOCK_TOLERANCE_S else 0.0
        if self._is_first_round and isinstance(replies[-1], dict):
            self._is_first_round = False
            self._forget_dead(replies[-1])
        if errors:
            self.note_trouble("Redis refuses logs and metrics: %s", errors[0])
            return False
        if self._has_trouble:
            logger.info("logs and metrics reach Redis again")
        self._has_trouble = False
        self.is_connected = True
        return True

    def _forget_dead(self, beats: dict[bytes, bytes]) -> None:
        """Remove heartbeats of processes that died long ago: the hash must not grow with every restart."""
        now_s = time.time() + self.offset_s
        dead = []
        for key, value in beats.items():
            try:
                is_dead = not Heartbeat.decode(value, now_s=now_s).is_alive(FORGET_S)
            except CodecError:
                is_dead = True
            if is_dead and key != self._process.encode():
                dead.append(key)
        if dead:
            self.remove_heartbeats(*dead)

    def remove_heartbeats(self, *processes: bytes | str) -> None:
        """Remove those of these processes; without any, this one's."""
        try:
            self._client.redis.hdel(self._client.run_keys.processes, *(processes or [self._process]))
        except RedisError as error:
            logger.debug("heartbeats not removed: %s", error)
