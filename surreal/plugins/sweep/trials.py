"""The trials of a sweep, and their file `trials.jsonl`.

    {"kind": "sweep", "id": "lr-20260131-123456-9f3a", "started": 1769862896.8}
    {"kind": "trial", "trial": 0, "settings": {"learner.gamma": 0.95}}
    {"kind": "end", "trial": 0, "status": "finished", "score": 410.5, "scores": {"0": 410.5}, "reason": "", ...}

A line is written before the sweep acts on it, so a process that reads the file continues where it ends. A trial without
an end is in progress, and the progress of its runs is in their folders. A line that was cut off had no effect.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from surreal.base.errors import FolderError
from surreal.base.system.files import parse_json

EndStatus = Literal["finished", "pruned", "failed"]


@dataclass(frozen=True)
class End:
    """End of a trial."""

    status: EndStatus
    score: float | None = None  #: higher is better; None unless it finished
    scores: Mapping[int, float] = field(default_factory=dict)  #: score of each run by seed
    reason: str = ""  #: reason why it failed or was pruned
    reports: Mapping[int, float] = field(default_factory=dict)  #: mean returns that the pruner saw, by env steps


@dataclass
class Trial:
    """One choice of settings."""

    number: int
    settings: dict[str, Any]
    end: End | None = None


class TrialFile:
    """Reads and extends `trials.jsonl`; used by one process at a time.

    Args:
        path: path of the file; made at the first line.

    Attributes:
        sweep: the sweep's id, "" before `begin`.
        started: time when it began, s since 1970.
        trials: all trials, by their numbers, which begin at 0 and have no gaps.

    Raises:
        FolderError: the file cannot be read, or its content is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sweep = ""
        self.started = 0.0
        self.trials: list[Trial] = []
        try:
            content = path.read_bytes() if path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            if len(whole) < len(content):
                with path.open("r+b") as file:
                    file.truncate(len(whole))
        except OSError as error:
            raise FolderError(f"{path} cannot be read: {error}") from error
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self._take(parse_json(line))
            except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                problem = f"{path} line {number} is invalid ({error!r}); it is not a file of a sweep, or was edited"
                raise FolderError(problem) from error

    @property
    def open(self) -> list[Trial]:
        """Trials that have not ended."""
        return [trial for trial in self.trials if trial.end is None]

    def begin(self, sweep: str) -> None:
        """Record that a sweep begins."""
        self._add({"kind": "sweep", "id": sweep, "started": time.time()})

    def add(self, settings: Mapping[str, Any]) -> Trial:
        """Record that a trial begins."""
        self._add({"kind": "trial", "trial": len(self.trials), "settings": dict(settings)})
        return self.trials[-1]

    def end(self, trial: Trial, end: End) -> None:
        """Record the end of a trial."""
        plain = {
            "status": end.status,
            "score": end.score,
            "scores": {str(seed): score for seed, score in end.scores.items()},
            "reason": end.reason,
            "reports": {str(step): value if math.isfinite(value) else None for step, value in end.reports.items()},
        }
        self._add({"kind": "end", "trial": trial.number, **plain})

    def _add(self, line: dict[str, Any]) -> None:
        try:
            with self._path.open("ab", buffering=0) as file:
                size = file.tell()
                text = json.dumps(line).encode() + b"\n"
                if file.write(text) != len(text):
                    file.truncate(size)
                    raise OSError("the disk is full")
        except OSError as error:
            raise FolderError(f"{self._path} could not be written: {error}") from error
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        if line["kind"] == "sweep":
            self.sweep, self.started = str(line["id"]), float(line["started"])
        elif line["kind"] == "trial":
            if line["trial"] != len(self.trials):
                raise ValueError(f"trial {line['trial']} follows {len(self.trials)} others")
            self.trials.append(Trial(len(self.trials), dict(line["settings"])))
        elif line["kind"] == "end":
            trial = self.trials[line["trial"]]
            if trial.end is not None:
                raise ValueError(f"trial {trial.number} ends twice")
            trial.end = End(
                status=line["status"],
                score=None if line["score"] is None else float(line["score"]),
                scores={int(seed): float(score) for seed, score in line["scores"].items()},
                reason=str(line["reason"]),
                reports={
                    int(step): math.nan if value is None else float(value) for step, value in line["reports"].items()
                },
            )
        else:
            raise ValueError(f"its kind is {line['kind']!r}")
