"""`ConsoleSink`: a line for each moment, on the output of the process that collects."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Sequence

from surreal.run.observers.sinks.base import MetricSink, Numbers


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
