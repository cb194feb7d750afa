"""A sweep's folder: its files, its lock, and the folders of its runs."""

from __future__ import annotations

from pathlib import Path

from surreal.base.errors import BusyError, ConfigError, FolderError
from surreal.base.system.files import FileLock, write_whole
from surreal.config import load_config, to_yaml
from surreal.plugins.sweep.definition import Definition, load_definition
from surreal.plugins.sweep.trials import Trial, TrialFile
from surreal.run.process.run_folder import new_run_id

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
        """Whether a sweep has begun here."""
        return (self.path / TRIALS_NAME).exists()

    def run_folder(self, trial: Trial, seed: int) -> Path:
        """Return the folder of a trial's run."""
        return self.path / "runs" / self.label(trial, seed)

    def console(self, trial: Trial, seed: int) -> Path:
        """Return the path of a run's console output."""
        return self.path / "logs" / f"{self.label(trial, seed)}.out"

    def label(self, trial: Trial, seed: int) -> str:
        """Return the name of a trial's run within the sweep: 003-s0."""
        return f"{trial.number:03d}-s{seed}"

    def claim(self) -> None:
        """Lock the sweep for this process, until `release` or its end.

        Raises:
            BusyError: another process drives the sweep.
            ConfigError: the folder cannot be made.
        """
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
        """Write the files of a new sweep.

        Raises:
            FolderError: a file cannot be written.
        """
        try:
            write_whole(self.path / SWEEP_NAME, definition.text)
            write_whole(self.base, to_yaml(load_config(definition.base)), mode=0o600)  # it may contain passwords
        except OSError as error:
            raise FolderError(f"{self.path} could not be written: {error}") from error
        trials = TrialFile(self.path / TRIALS_NAME)
        trials.begin(new_run_id(definition.config.name))
        return trials

    def resume(self, definition: Definition | None) -> tuple[Definition, TrialFile]:
        """Continue the sweep in this folder, with the current file, or with that of its beginning.

        Raises:
            ConfigError: the folder has no sweep, or the file has changed in a setting of the trials.
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
