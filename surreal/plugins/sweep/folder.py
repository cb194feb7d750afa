"""A sweep's folder: its files, its lock, the folders of its runs, and its trials in `trials.jsonl`.

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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from surreal.base.errors import BusyError, ConfigError, FolderError
from surreal.base.system.files import FileLock, parse_json, write_whole
from surreal.config import load_config, to_yaml
from surreal.plugins.sweep.definition import Definition, load_definition
from surreal.run.process.run_folder import new_run_id

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
    """Reads and extends `trials.jsonl`, which the first line makes; used by one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sweep = ""  # its id, once it has begun
        self.started = 0.0  # s since 1970
        self.trials: list[Trial] = []  # by their numbers, which begin at 0 and have no gaps
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
        return [trial for trial in self.trials if trial.end is None]

    def begin(self, sweep: str) -> None:
        self._add({"kind": "sweep", "id": sweep, "started": time.time()})

    def add(self, settings: Mapping[str, Any]) -> Trial:
        self._add({"kind": "trial", "trial": len(self.trials), "settings": dict(settings)})
        return self.trials[-1]

    def end(self, trial: Trial, end: End) -> None:
        reports = {step: value if math.isfinite(value) else None for step, value in end.reports.items()}
        self._add({"kind": "end", "trial": trial.number, **asdict(end), "reports": reports})

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


SWEEPS_FOLDER = Path("sweeps")
SWEEP_NAME = "sweep.yaml"
BASE_NAME = "base.yaml"
TRIALS_NAME = "trials.jsonl"
OPTUNA_NAME = "optuna.journal"
LOCK_NAME = "sweep.lock"
#: Settings that may change when a sweep continues, because they change no existing trial.
_MAY_CHANGE = {"parallel", "max_failures", "search.trials"}
#: Settings that the copy of the sweep's file does not keep: the folder does.
_KEPT_ELSEWHERE = {"name", "base"}


class SweepFolder:
    """A sweep's folder, for the process that drives it.

    folder.claim()
    folder.begin(definition)      # or folder.resume(definition)
    ...
    folder.release()
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = FileLock(self.path / LOCK_NAME)

    @property
    def base(self) -> Path:
        """Path of a copy of the base configuration from the beginning of the sweep."""
        return self.path / BASE_NAME

    @property
    def holds_sweep(self) -> bool:
        return (self.path / TRIALS_NAME).exists()

    def run_folder(self, trial: Trial, seed: int) -> Path:
        return self.path / "runs" / self.label(trial, seed)

    def console(self, trial: Trial, seed: int) -> Path:
        return self.path / "logs" / f"{self.label(trial, seed)}.out"

    def label(self, trial: Trial, seed: int) -> str:
        """Return the name of a trial's run within the sweep: 003-s0."""
        return f"{trial.number:03d}-s{seed}"

    def claim(self) -> None:
        """Lock the sweep for this process, until `release` or its end."""
        try:
            for path in (self.path, self.path / "runs", self.path / "logs"):
                path.mkdir(parents=True, exist_ok=True)
            is_locked = self._lock.acquire()
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise ConfigError(f"{self.path} cannot be a sweep's folder: {problem}", key="--dir") from error
        if not is_locked:
            raise BusyError(f"{self.path} belongs to a sweep that is in progress: {self._lock.holder()} drives it")

    def release(self) -> None:
        """Release the lock, and remove empty folders."""
        for path in (self.path / "runs", self.path / "logs"):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        is_unused = not self.holds_sweep
        self._lock.release(is_removed=is_unused)
        if is_unused and self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def begin(self, definition: Definition) -> TrialFile:
        try:
            write_whole(self.path / SWEEP_NAME, definition.text)
            write_whole(self.base, to_yaml(load_config(definition.base)), mode=0o600)  # it may contain passwords
        except OSError as error:
            raise FolderError(f"{self.path} could not be written: {error}") from error
        trials = TrialFile(self.path / TRIALS_NAME)
        trials.begin(new_run_id(definition.config.name))
        return trials

    def resume(self, definition: Definition | None) -> tuple[Definition, TrialFile]:
        """Continue the sweep in this folder, with the current file, or with that of its beginning. Raises `ConfigError`
        if the folder has no sweep, or the file has changed in a setting of the trials.
        """
        if not self.holds_sweep:
            raise ConfigError(f"{self.path} has no sweep to continue", key="--resume")
        kept = load_definition(self.path / SWEEP_NAME)
        if definition is not None:
            for key in _differences(kept, definition):
                raise ConfigError(
                    f"{key} has changed since the sweep in {self.path} began; "
                    f"set it back, or begin another sweep with --dir DIR; {', '.join(sorted(_MAY_CHANGE))} may change",
                    key=key,
                )
        return definition or kept, TrialFile(self.path / TRIALS_NAME)


def _differences(before: Definition, now: Definition) -> list[str]:
    """List the changed settings that make the trials incomparable."""

    def flat(definition: Definition) -> dict[str, object]:  # one level of sections, as in the file's names
        found: dict[str, object] = {}
        for key, value in definition.config.model_dump(mode="json", by_alias=True).items():
            inner = value if isinstance(value, dict) else {"": value}
            found |= {f"{key}.{name}".rstrip("."): each for name, each in inner.items()}
        return found

    old, new = flat(before), flat(now)
    return sorted(
        key
        for key in old.keys() | new.keys()
        if key not in _MAY_CHANGE | _KEPT_ELSEWHERE and old.get(key) != new.get(key)
    )
