"""`CsvSink`: a run's metrics as a table of comma-separated values."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from surreal.run.observers.sinks.base import MetricSink, Numbers

_HEADER = ("time", "process", "step", "metric", "value")


class CsvSink(MetricSink):
    """Appends a row for each number: time in s since 1970, process, env steps, name, value.

    Args:
        run_dir: the run's folder.
        path: of the file, from that folder.
    """

    def __init__(self, run_dir: Path, path: str = "metrics.csv") -> None:
        self._path = run_dir / path

    def write(self, numbers: Sequence[Numbers]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            writer.writerow(_HEADER)
        for each in numbers:
            for name, value in each.values.items():
                writer.writerow((f"{each.time:.3f}", each.process, each.step, name, repr(value)))
        self._append(text.getvalue().encode())

    def _append(self, content: bytes) -> None:
        """Write all of it or, as far as that can be helped, nothing: it is tried again."""
        with self._path.open("ab") as file:
            size = file.tell()
            try:
                file.write(content)
                file.flush()
            except OSError:
                os.truncate(self._path, size)
                raise
