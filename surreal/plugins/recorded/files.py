"""Reads the files of a run's folder while they grow: metrics and scores line by line, and the ends of logs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

from surreal.base.errors import CodecError
from surreal.base.system.files import older_path, parse_json
from surreal.distributed.telemetry.records import decode_number
from surreal.distributed.telemetry.render import METRICS_PATH
from surreal.plugins.recorded.history import POINTS, History, check_place
from surreal.run.process.run_folder import tail

#: Bytes that are read at once; a longer line is skipped.
BLOCK_BYTES = 1 << 20
#: Bytes before the current offset, which tell whether the file was replaced.
_MEMORY_BYTES = 64


class Portion(NamedTuple):
    """Lines of one read."""

    lines: list[bytes]
    is_restart: bool = False  #: the file was replaced or cut back; these lines are its first
    is_end: bool = True  #: there is no more for now


class LineReader:
    """Gives each whole line of a growing file once; one that was cut back or replaced is read again from its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0  #: bytes read so far
        self.skipped = 0  #: lines that were too long
        self._before = b""
        self._is_inside_long_line = False

    def read(self) -> Portion:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return Portion([])
        with file:
            file.seek(self.offset - len(self._before))
            is_restart = file.read(len(self._before)) != self._before
            if is_restart:
                self.offset = self.skipped = 0
                self._before, self._is_inside_long_line = b"", False
            file.seek(self.offset)
            data = file.read(BLOCK_BYTES)
            size = os.fstat(file.fileno()).st_size
        whole, newline, _ = data.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        if self._is_inside_long_line and lines:
            del lines[0]
            self._is_inside_long_line = False
        consumed = len(whole) + len(newline)
        if not newline and len(data) == BLOCK_BYTES:
            self.skipped += not self._is_inside_long_line
            self._is_inside_long_line, consumed = True, len(data)
        self.offset += consumed
        self._before = (self._before + data[:consumed])[-_MEMORY_BYTES:]
        return Portion(lines, is_restart, not consumed or self.offset >= size)


_SCORES_PATH = Path("eval", "scores.jsonl")


class RunHistory(History):
    """Metrics and scores in a run's folder; `update` reads new lines, and skips and counts unreadable ones."""

    def __init__(self, folder: Path, points: int = POINTS) -> None:
        super().__init__(points)
        self._folder = folder
        self._begin()

    @property
    def skipped(self) -> int:
        """Number of lines that could not be read."""
        return self._bad_lines + sum(reader.skipped for reader, _ in self._sources)

    @property
    def read_bytes(self) -> int:
        return sum(reader.offset for reader, _ in self._sources)

    @property
    def total_bytes(self) -> int:
        return sum(reader.path.stat().st_size for reader, _ in self._sources if reader.path.exists())

    def update(self, max_bytes: int = 1 << 62) -> bool:
        """Read new lines, and return whether that was all for now.

        Args:
            max_bytes: approximate limit of one call; at least one block of each file is read.

        Raises:
            OSError: a file cannot be read.
        """
        budget = self.read_bytes + max_bytes
        for reader, take in self._sources:
            is_end = False
            while not is_end:
                lines, is_restart, is_end = reader.read()
                if is_restart:  # a file was replaced or cut back: read everything again
                    self._begin()
                    return False
                for line in lines:
                    try:
                        take(parse_json(line))
                    except (CodecError, ValueError, KeyError, TypeError, AttributeError):
                        self._bad_lines += 1
                if not is_end and self.read_bytes >= budget:
                    return False
        return True

    def _begin(self) -> None:
        self.clear()
        self._bad_lines = 0
        self._sources: list[tuple[LineReader, Callable[[Any], None]]] = [
            (LineReader(path), take)
            for newest, take in ((METRICS_PATH, self._take_metrics), (_SCORES_PATH, self._take_score))
            for path in (older_path(self._folder / newest), self._folder / newest)
        ]

    def _take_metrics(self, line: dict[str, Any]) -> None:
        time_s, step = check_place(decode_number(line["time"]), decode_number(line["step"]))
        if "metrics" in line:
            self.add(str(line["process"]), time_s, step, line["metrics"])

    def _take_score(self, line: dict[str, Any]) -> None:
        if line["kind"] == "round":
            self.add_round(line)


#: From least to most severe.
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: Bytes that are read from the end of each log, and the longest text of a record.
_TAIL_BYTES = 256 << 10
_MAX_TEXT_CHARS = 10_000
_RECORD = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z) (\S+) +(.*)")


class LogRecord(NamedTuple):
    """One log record of one process."""

    time: str  #: UTC
    process: str
    level: str  #: one of LEVELS; INFO for the first line of a process
    text: str  #: logger and message, with further lines


def log_names(folder: Path) -> list[str]:
    """List the processes of a run that have logs."""
    return sorted(path.stem for path in (folder / "logs").glob("*.log"))


def tail_logs(
    folder: Path, *, processes: Collection[str] = (), level: str = "DEBUG", contains: str = "", limit: int = 500
) -> list[LogRecord]:
    """Read the newest records of a run, oldest first: of some processes or all, from a level on, with a text."""
    wanted = set(LEVELS[LEVELS.index(level) :])
    found = [
        record
        for name in log_names(folder)
        if not processes or name in processes
        for record in _read(folder / "logs" / f"{name}.log", name)
        if record.level in wanted and contains.lower() in record.text.lower()
    ]
    return sorted(found, key=lambda record: record.time)[-limit:]


def _read(path: Path, process: str) -> list[LogRecord]:
    records: list[LogRecord] = []
    for line in tail(path, _TAIL_BYTES):
        if match := _RECORD.fullmatch(line):
            level = match[2] if match[2] in LEVELS else "INFO"
            records.append(LogRecord(match[1], process, level, match[3]))
        elif records and line:  # further lines of a record; before the first one, the rest of a record cut in two
            text = f"{records[-1].text}\n{line.removeprefix('    ')}"
            records[-1] = records[-1]._replace(text=text[:_MAX_TEXT_CHARS])
    return records
