"""`Collector`: writes logs and metrics of every process of a run, on any machine, into the run's folder.

It follows the run's log stream and writes `logs/`, `metrics.jsonl` and `tensorboard/` (docs/run-folder.md). The learner
runs it in a thread, and the launcher drains at the end. Of several collectors of one folder, one writes and the others
wait.

Every entry is written once. The cursor alone cannot guarantee that: Redis may return without its newest entries, or
empty, or with another clock, and a sender repeats an entry whose outcome it does not know. So entries are identified by
process and number. The cursor only saves reading, and starts over whenever the server is another one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from redis.exceptions import RedisError, ResponseError

from surreal.base.errors import CodecError
from surreal.base.ranges import Positive, checked
from surreal.base.system.files import is_disk_full
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import parse_entry_id
from surreal.distributed.telemetry import render
from surreal.distributed.telemetry.records import LogEntry, decode_entry
from surreal.distributed.telemetry.run_files import CollectorProgress, RunFiles, Seen

logger = logging.getLogger(__name__)

#: Entries read at once, at most a few MB.
READ_COUNT = 64
#: Intervals at which the server's identity is checked, and read entries are trimmed, s.
CHECK_INTERVAL_S = 2.0
TRIM_INTERVAL_S = 60.0
#: Maximum size of a file, and of `metrics.jsonl`; together with its older part, it has twice that.
MAX_FILE_BYTES, MAX_METRICS_BYTES = 64 << 20, 512 << 20
#: Most files in the folder, because names of processes come from the network.
MAX_FILES = 2000


@checked
@dataclass(eq=False, repr=False)
class Collector:
    """Follows the run's log stream into a folder.

    Its thread calls `step` again and again: `supervisor.spawn("collector", collector.step)`.
    """

    client: RedisClient
    run_dir: str | os.PathLike[str]
    _: KW_ONLY
    tensorboard: bool = True  #: also write TensorBoard event files
    #: written entries older than this are removed from Redis. Raising it lets other readers look further back, and
    #: costs memory of Redis
    keep_s: Positive = 600.0

    def __post_init__(self) -> None:
        self._files = RunFiles(self.run_dir)
        #: error of the last attempt if the disk was full; None while there is room
        self.disk_error: OSError | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._next_check = self._next_trim = 0.0
        self._trouble = ""
        self._entry_count = self._skipped_count = self._lost_count = 0

    def step(self, timeout_s: float = 0.5) -> int:
        """Write new entries, waiting for them up to `timeout_s`; return how many were read.

        If Redis is away, the disk is full, or another collector uses the folder, it waits and does not raise.
        """
        with self._lock:
            count = self._poll(timeout_s)
        if count is None:
            self._closed.wait(timeout_s)
        return count or 0

    def drain(self, timeout_s: float = 10.0) -> bool:
        """Write everything that Redis has now; return whether all of it is in the folder, after at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._next_check = 0.0
        while True:
            with self._lock:
                count = self._poll(0.0)
            if count == 0:
                return True
            if time.monotonic() > deadline or self._closed.is_set():
                return False
            if count is None:
                self._closed.wait(0.05)

    def metrics(self) -> dict[str, float]:
        """Return totals: entries written, invalid entries and lines, entries that never came."""
        return {
            "collector/entries_total": float(self._entry_count),
            "collector/skipped_total": float(self._skipped_count),
            "collector/lost_total": float(self._lost_count),
        }

    def close(self) -> None:
        """Leave the folder to another collector; everything read was written."""
        self._closed.set()
        with self._lock:
            self._files.release()

    def _poll(self, timeout_s: float) -> int | None:
        """Read and write once; None when that is not possible now."""
        try:
            if self._closed.is_set() or not self._files.acquire():
                return None
            self._check_server()
            block_ms = max(1, int(1000 * min(timeout_s, 1.0))) if timeout_s > 0 else None
            entries = self.client.read_stream(
                self.client.run_keys.log, self._files.progress.cursor, READ_COUNT, block_ms
            )
            if entries:
                self._write(entries)
            self._trim()
        except RedisError as error:
            self._note_trouble("Redis is away, the run's logs and metrics wait there: %s", error)
            self._next_check = 0.0
            return None
        except OSError as error:
            self._note_trouble("the run's logs and metrics cannot be written: %s", error)
            self.disk_error = error if is_disk_full(error) else None
            return None
        self.disk_error = None
        if self._trouble:
            logger.info("the run's logs and metrics are written again")
            self._trouble = ""
        return len(entries)

    def _check_server(self) -> None:
        """Start from the beginning if the stream may be another one, or was emptied."""
        if time.monotonic() < self._next_check:
            return
        progress = self._files.progress
        try:
            info: Any = self.client.redis.info("server")
            server = str(info.get("run_id", ""))
        except ResponseError:  # a user without the right to ask
            server = progress.server
        newest: Any = self.client.redis.xrevrange(self.client.run_keys.log, count=1)
        is_behind = not newest or parse_entry_id(newest[0][0]) < parse_entry_id(progress.cursor.encode())
        if (server != progress.server or is_behind) and progress.cursor != "0-0":
            logger.debug("log stream of another server, or emptied: followed from its beginning")
            self._files.progress = CollectorProgress("0-0", server, progress.seen)
        elif server != progress.server:
            self._files.progress = CollectorProgress(progress.cursor, server, progress.seen)
        self._next_check = time.monotonic() + CHECK_INTERVAL_S

    def _write(self, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> None:
        self._files.rotate(lambda path: MAX_METRICS_BYTES if path == render.METRICS_PATH else MAX_FILE_BYTES)
        seen = dict(self._files.progress.seen)
        contents: dict[str, bytearray] = {}
        written = skipped = lost = 0
        for _, fields in entries:
            try:
                entry = decode_entry(fields)
            except CodecError as error:
                skipped += 1
                logger.debug("log entry skipped: %s", error)
                continue
            numbers = seen.pop(entry.process, None)
            if numbers is not None and entry.sequence in numbers:
                seen[entry.process] = numbers
                continue
            if numbers is not None:  # otherwise, this folder joined late, and nothing is lost
                lost += max(-1, entry.sequence - numbers.last - 1)  # -1: a missing one has come
            seen[entry.process] = (numbers or Seen()).add(entry.sequence)
            self._render(entry, contents, is_new=numbers is None)
            written += 1
            skipped += entry.skipped
        cursor = entries[-1][0].decode()
        finished = {path: bytes(content) for path, content in contents.items()}
        self._files.commit(finished, CollectorProgress(cursor, self._files.progress.server, seen))
        if skipped and not self._skipped_count:
            logger.warning("the run's log stream has entries that make no sense; they are skipped and counted")
        self._entry_count += written
        self._skipped_count += skipped
        self._lost_count = max(0, self._lost_count + lost)

    def _render(self, entry: LogEntry, contents: dict[str, bytearray], *, is_new: bool) -> None:
        name = render.file_name(entry.name)
        if render.log_path(name) not in self._files and len(self._files) >= MAX_FILES:
            name = "others"
        path = render.event_path(name)
        metrics = render.render_metrics(entry, name)
        parts = [(render.log_path(name), render.render_log(entry, is_new=is_new)), (render.METRICS_PATH, metrics)]
        if self.tensorboard:
            has_header = path in self._files or path in contents
            parts.append((path, render.render_events(entry, is_new=not has_header)))
        for path, content in parts:
            if content:
                contents.setdefault(path, bytearray()).extend(content)

    def _trim(self) -> None:
        """Remove old written entries, because Redis needs its memory for experience."""
        if time.monotonic() < self._next_trim:
            return
        self._next_trim = time.monotonic() + TRIM_INTERVAL_S
        oldest_ms = parse_entry_id(self._files.progress.cursor.encode())[0] - int(1000 * self.keep_s)
        if oldest_ms > 0:
            with contextlib.suppress(ResponseError):  # a user who may only read
                self.client.redis.xtrim(self.client.run_keys.log, minid=f"{oldest_ms}-0", approximate=True)

    def _note_trouble(self, message: str, error: Exception) -> None:
        logger.log(logging.DEBUG if self._trouble == message else logging.WARNING, message, error)
        self._trouble = message
