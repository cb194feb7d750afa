"""The history in a run's folder, read as far as it is written.

    history = RunHistory(folder)
    while not history.update(max_bytes=8 << 20):    # reads what has been written since the last time
        ...
    for process, rows in history.curves("learner/loss").items():
        rows.step, rows.value

What cannot be read is passed over and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from surreal.base.errors import CodecError
from surreal.base.system.files import parse_json
from surreal.distributed.telemetry.records import decode_number
from surreal.distributed.telemetry.render import METRICS_PATH
from surreal.run.view.reading.history import History, check_place
from surreal.run.view.reading.lines import LineReader
from surreal.run.view.reading.series import POINTS

_SCORES_PATH = Path("eval", "scores.jsonl")


class RunHistory(History):
    """Metrics and scores of a folder; only what is new is read.

    Args:
        folder: of the run.
        points: see `Series`.
    """

    def __init__(self, folder: Path, points: int = POINTS) -> None:
        super().__init__(points)
        self._folder = folder
        self._begin()

    @property
    def skipped(self) -> int:
        """Lines that could not be read."""
        return self._bad_lines + sum(reader.skipped for reader, _ in self._sources)

    @property
    def read_bytes(self) -> int:
        """How far the files have been read."""
        return sum(reader.offset for reader, _ in self._sources)

    @property
    def total_bytes(self) -> int:
        """How long the files are."""
        return sum(reader.path.stat().st_size for reader, _ in self._sources if reader.path.exists())

    def update(self, max_bytes: int = 1 << 62) -> bool:
        """Read what has been written since; returns whether that is all for now.

        Args:
            max_bytes: about how much to read in one call, at least a block of each file.

        Raises:
            OSError: a file cannot be read.
        """
        budget = self.read_bytes + max_bytes
        for reader, take in self._sources:
            is_end = False
            while not is_end:
                lines, is_restart, is_end = reader.read()
                if is_restart:  # a file was replaced, or cut back: everything anew
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
            (LineReader(self._folder / METRICS_PATH), self._take_metrics),
            (LineReader(self._folder / _SCORES_PATH), self._take_score),
        ]

    def _take_metrics(self, line: dict[str, Any]) -> None:
        time_s, step = check_place(decode_number(line["time"]), decode_number(line["step"]))
        if "metrics" in line:
            self.add(str(line["process"]), time_s, step, line["metrics"])

    def _take_score(self, line: dict[str, Any]) -> None:
        if line["kind"] == "round":
            self.add_round(line)
