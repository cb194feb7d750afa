"""Sinks that write metrics to the console or to a CSV file, and the base of all sinks."""

from __future__ import annotations

import csv
import fnmatch
import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Numbers(NamedTuple):
    """Metrics of a process at one moment."""

    time: float  #: seconds since 1970, of the Redis server's clock
    process: str  #: such as "learner" or "agent-0"
    step: int  #: env steps of the whole run
    values: Mapping[str, float]  #: by name, see docs/metrics.md; nan and inf may be among them


class MetricSink(ABC):
    """Base of all sinks. A subclass gives `write`.

        class Printer(MetricSink):
            def write(self, numbers):
                for each in numbers:
                    print(each.step, each.values)

    The configuration names it, and the process that collects the run's metrics (the learner, and at the end a process
    of the launcher) makes it:

        sinks:
          - class: my_sinks.Printer

    A constructor that names them gets from the run: `run` (its id), `run_dir`, `process` and `seed`.

    Every line of `metrics.jsonl` is handed over once, in its order; the newest again if the process is killed between
    `write` and the note that it was done. What a method raises is logged, and the same lines are tried again later:
    training does not wait for a sink.
    """

    @classmethod
    def require(cls) -> None:
        """Check that what this kind of sink needs is installed.

        Raises:
            ImportError: it is not installed; the message has the command.
        """

    @classmethod
    def waits_for_end(cls, **_: Any) -> bool:
        """Whether a sink with these arguments gets everything at the end of a run, from one process that makes it."""
        return False

    @abstractmethod
    def write(self, numbers: Sequence[Numbers]) -> None:
        """Take some numbers, one at least."""

    def close(self) -> None:
        """Take note that nothing follows from this process; another one may continue."""


class ConsoleSink(MetricSink):
    """Writes chosen metrics as text: to the terminal of `surreal learner`, or to `logs/learner.out` of `surreal run`.

    Args:
        metrics: names, or patterns such as `eval/*`, of what is shown.
    """

    def __init__(
        self, metrics: Sequence[str] = ("eval/episode_return", "agent/episode_return", "learner/loss")
    ) -> None:
        self._patterns = tuple(metrics)

    def write(self, numbers: Sequence[Numbers]) -> None:
        for each in numbers:
            shown = [
                f"{name} {value:.6g}"
                for name, value in each.values.items()
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)
            ]
            if shown:
                sys.stdout.write(f"{each.step:,} {each.process}: {', '.join(shown)}\n")
        sys.stdout.flush()


_HEADER = ("time", "process", "step", "metric", "value")


class CsvSink(MetricSink):
    """Appends a row for each number: time in s since 1970, process, env steps, name, value.

    Args:
        run_dir: the run's folder.
        path: path of the file, from that folder.
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
