"""A sweep's folder: its files, its lock, and where its runs are."""

from __future__ import annotations

from pathlib import Path

from surreal.base.errors import BusyError, ConfigError, FolderError
from surreal.base.system.files import FileLock, write_whole
from surreal.config import load_config, to_yaml
from surreal.plugins.sweep.definition.loading import Definition, load_definition
from surreal.plugins.sweep.trials import Trial, TrialFile
from surreal.run.process.run_folder import new_run_id

SWEEPS_FOLDER = Path("sweeps")
SWEEP_NAME = "sweep.yaml"
BASE_NAME = "base.yaml"
TRIALS_NAME = "trials.jsonl"
OPTUNA_NAME = "optuna.journal"
LOCK_NAME = "sweep.lock"
#: What may be another when a sweep continues: it changes no trial that there is.
_MAY_CHANGE = {"parallel", "max_failures", "search.trials"}
#: What the kept copies of the sweep's files do not say again.
_KEPT_ELSEWHERE = {"name", "base"}


class SweepFolder:
    """A sweep's folder, for the process that drives it.

        folder.claim()
        folder.begin(definition)      # or folder.resume(definition)
        ...
        folder.release()

    Args:
        path: the folder; made by `claim`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = FileLock(self.path / LOCK_NAME)

    @property
    def base(self) -> Path:
        """The configuration that the trials differ from, as it was when the sweep began."""
        return self.path / BASE_NAME

    @property
    def holds_sweep(self) -> bool:
        """Whether a sweep has begun here."""
        return (self.path / TRIALS_NAME).exists()

    def run_folder(self, trial: Trial, seed: int) -> Path:
        """The folder of a trial's run."""
        return self.path / "runs" / self.label(trial, seed)

    def console(self, trial: Trial, seed: int) -> Path:
        """What such a run says on its console."""
        return self.path / "logs" / f"{self.label(trial, seed)}.out"

    def label(self, trial: Trial, seed: int) -> str:
        """Name of a trial's run within the sweep: 003-s0."""
        return f"{trial.number:03d}-s{seed}"

    def claim(self) -> None:
        """Become the only one who drives the sweep, until `release` or the end of this process.

        Raises:
            BusyError: another process does.
            ConfigError: there cannot be such a folder.
        """
        try:
            for path in (self.path, self.path / "runs", self.path / "logs"):
                path.mkdir(parents=True, exist_ok=True)
            is_ours = self._lock.acquire()
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise ConfigError(f"{self.path} cannot be a sweep's folder: {problem}", key="--dir") from error
        if not is_ours:
            raise BusyError(f"{self.path} belongs to a sweep that is in progress: {self._lock.holder()} drives it")

    def release(self) -> None:
        """Let another process drive it; what is empty is removed."""
        for path in (self.path / "runs", self.path / "logs"):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        is_unused = not self.holds_sweep
        self._lock.release(is_removed=is_unused)
        if is_unused and self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def begin(self, definition: Definition) -> TrialFile:
        """Write down that a sweep begins here.

        Raises:
            FolderError: it cannot be written.
        """
        try:
            write_whole(self.path / SWEEP_NAME, definition.text)
            write_whole(self.base, to_yaml(load_config(definition.base)), mode=0o600)  # it may hold passwords
        except OSError as error:
            raise FolderError(f"{self.path} could not be written: {error}") from error
        trials = TrialFile(self.path / TRIALS_NAME)
        trials.begin(new_run_id(definition.config.name))
        return trials

    def resume(self, definition: Definition | None) -> tuple[Definition, TrialFile]:
        """Go on with the sweep that is here.

        Args:
            definition: what the file says now; None: what it said then.

        Raises:
            ConfigError: no sweep is here, or the file says something else about its trials.
        """
        if not self.holds_sweep:
            raise ConfigError(f"{self.path} holds no sweep to continue with", key="--resume")
        kept = load_definition(self.path / SWEEP_NAME)
        if definition is not None:
            for key in _differences(kept, definition):
                raise ConfigError(
                    f"{key} is not what it was when the sweep in {self.path} began; "
                    f"set it back, or begin another sweep with --dir DIR; {', '.join(sorted(_MAY_CHANGE))} may change",
                    key=key,
                )
        return definition or kept, TrialFile(self.path / TRIALS_NAME)


def _differences(before: Definition, now: Definition) -> list[str]:
    """Settings of a sweep whose change would make its trials incomparable."""
    old, new = (_flat(definition.config.model_dump(mode="json", by_alias=True)) for definition in (before, now))
    return sorted(
        key
        for key in old.keys() | new.keys()
        if key not in _MAY_CHANGE | _KEPT_ELSEWHERE and old.get(key) != new.get(key)
    )


def _flat(data: dict[str, object]) -> dict[str, object]:
    """Settings by the names that the file has for them: one level of sections, below which values are whole."""
    found: dict[str, object] = {}
    for key, value in data.items():
        found.update(
            {f"{key}.{name}": inner for name, inner in value.items()} if isinstance(value, dict) else {key: value}
        )
    return found
