"""The ends of a run's logs, put together by time: `logs/NAME.log` of each process."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

#: From the least to the most serious.
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
#: Of each log no more than this is read, from its end; and of a record no more is kept, in characters.
_TAIL_BYTES = 256 << 10
_MAX_TEXT_CHARS = 10_000
_RECORD = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]+Z) (\S+) +(.*)")


class LogRecord(NamedTuple):
    """One record of one process."""

    time: str  #: UTC
    process: str
    level: str  #: one of LEVELS; INFO for the line that begins a process
    text: str  #: logger and message, with further lines


def log_names(folder: Path) -> list[str]:
    """The processes of a run that have logs."""
    return sorted(path.stem for path in (folder / "logs").glob("*.log"))


def tail_logs(
    folder: Path,
    *,
    processes: Collection[str] = (),
    level: str = "DEBUG",
    contains: str = "",
    limit: int = 500,
) -> list[LogRecord]:
    """The newest records of a run, oldest first.

    Args:
        folder: of the run.
        processes: whose; none: of all.
        level: the least serious one to show.
        contains: text that must be in a record, in any case.
        limit: how many at most.
    """
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
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            begin = max(0, file.tell() - _TAIL_BYTES)
            file.seek(begin)
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return []
    records: list[LogRecord] = []
    for line in lines:
        match = _RECORD.fullmatch(line)
        if match:
            level = match[2] if match[2] in LEVELS else "INFO"
            records.append(LogRecord(match[1], process, level, match[3]))
        elif records and line:  # further lines of a record; before the first one, the rest of a record cut in two
            text = f"{records[-1].text}\n{line.removeprefix('    ')}"
            records[-1] = records[-1]._replace(text=text[:_MAX_TEXT_CHARS])
    return records
