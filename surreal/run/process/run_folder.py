"""A run's folder: its lock, id, configuration, address of Redis, and result."""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal.base.errors import BusyError, ConfigError, FolderError
from surreal.base.system.files import FileLock, is_disk_full, parse_json, write_in_place, write_whole
from surreal.config import Config, to_yaml
from surreal.run.process.ending import result_of

if TYPE_CHECKING:
    from surreal.distributed.connection.address import FoundAddress

RUNS_FOLDER = Path("runs")
CONFIG_NAME = "app.yaml"
RESULT_NAME = "result.json"
ADDRESS_NAME = "redis.address"
RUN_NAME = "run.id"
LOCK_NAME = "run.lock"
METRICS_NAME = "metrics.jsonl"

#: Length of the result while the run lasts: more than it will need.
_RESULT_BYTES = 4096
_TAIL_BYTES = 256 << 10
_TIME = re.compile(r'\{"time": ([0-9.]+),')

_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=")


def new_run_id(name: str) -> str:
    """Make a unique run id: name, local time, four random digits."""
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


class RunFolder:
    """A run's folder, as its one writer sees it: the launcher, or a learner without a launcher.

        folder.claim()             # refused while another process writes there
        ...                        # check everything that can refuse the run
        folder.begin(config, run)
        folder.write_address(address, run)
        folder.write_result(...)
        folder.release()

    Args:
        path: the folder; `claim` makes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = FileLock(self.path / LOCK_NAME)
        self._made: list[Path] = []
        self._address = ""
        self.earlier_s = 0.0  #: duration of the run before it was resumed; set by `begin`

    @property
    def config_path(self) -> Path:
        return self.path / CONFIG_NAME

    def require_new(self) -> None:
        if self.config_path.exists():
            problem = f"{self.path} holds a run already; --resume continues it"
            raise ConfigError(f"{problem}, --run NAME or --run-dir DIR begins another", key="--run-dir")

    def claim(self) -> None:
        """Claim the folder until `release`; raises `BusyError`, or `ConfigError` if it cannot be made."""
        try:
            self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            is_ours = self._lock.acquire()
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise ConfigError(f"{self.path} cannot be a run's folder: {problem}", key="--run-dir") from error
        if not is_ours:
            what = f"{self.path} belongs to a run that is alive: {self._lock.holder()} writes there"
            raise BusyError(f"{what}; `surreal stop` ends it, --run NAME or --run-dir DIR begins another")

    def release(self) -> None:
        """Release the folder for another writer; if no run began, restore its earlier state."""
        path = self.path / ADDRESS_NAME
        with suppress(OSError):
            if self._address and path.read_text() == self._address:  # else another process wrote it
                path.unlink()
        is_new = bool(self._made) and not self.config_path.exists()
        self._lock.release(is_removed=is_new)
        if is_new:
            shutil.rmtree(self.path / "redis", ignore_errors=True)  # left by its server
            # If several runs begin at once, the last one removes the folder of all runs.
            common = [self.path.parent] if self.path.parent.name == RUNS_FOLDER.name else []
            for path in (*self._made, *common):
                with suppress(OSError):  # it is not empty
                    path.rmdir()

    def begin(self, config: Config, run: str, started: float) -> None:
        """Record that a run begins or is resumed here; nothing can refuse it after this."""
        text = to_yaml(config)
        self.earlier_s = time_so_far(self.path)
        self._write(RUN_NAME, f"{run}\n")
        # As long as the final result, so that it can be overwritten when the disk is full.
        result = result_of(config, run, None, started=started, time_s=self.earlier_s)
        self._write(RESULT_NAME, _padded(_json(result)))
        self._write(CONFIG_NAME, text, is_secret=bool(_PASSWORD.search(text)))

    def write_address(self, address: str, run: str) -> None:
        """Write the address of the run's Redis and the run's id; only this user may read it, because of passwords."""
        self._address = f"{address}\n{run}\n"
        self._write(ADDRESS_NAME, self._address, is_secret=True)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write how the run ended; on a full disk, overwrite what `begin` wrote."""
        text = _json(result)
        try:
            self._write(RESULT_NAME, text)
        except FolderError as error:
            path, content = self.path / RESULT_NAME, _padded(text).encode()
            is_room = isinstance(error.__cause__, OSError) and is_disk_full(error.__cause__)
            if not is_room or not path.exists() or path.stat().st_size != len(content):
                raise
            try:
                write_in_place(path, content)
            except OSError:
                raise error from error.__cause__

    def is_without_result(self) -> bool:
        """Whether the last process that led the run was killed, or ended by a signal: neither is the run's own end."""
        try:
            return read_result(self.path)["status"] in ("running", "interrupted")
        except (OSError, ValueError, KeyError):
            return False

    def sweep(self) -> None:
        """Remove temporary files that killed processes left; no process of the run may be alive."""
        for path in self.path.rglob(".*.tmp"):
            with suppress(OSError):
                path.unlink()

    def read_run(self) -> str | None:
        try:
            return (self.path / RUN_NAME).read_text().strip() or None
        except OSError:
            return None

    def read_address(self, given: str | None = None) -> tuple[FoundAddress, str] | None:
        """Read the address of the run's Redis and the run's id; None if the run is over."""
        from surreal.distributed.connection.address import FoundAddress  # with redis, which completion does not need

        try:
            lines = (self.path / ADDRESS_NAME).read_text().split()
        except OSError:
            return None
        return (FoundAddress(lines[0], given), lines[1]) if len(lines) == 2 else None

    def _write(self, name: str, text: str, *, is_secret: bool = False) -> None:
        try:
            write_whole(self.path / name, text, mode=0o600 if is_secret else 0o666)
        except OSError as error:
            raise FolderError(f"{self.path / name} could not be written: {error}") from error


def newest_running(folder: Path = RUNS_FOLDER) -> RunFolder | None:
    """Find the newest run below a folder that has an address of Redis."""
    return newest_with(ADDRESS_NAME, folder)


def newest_with(name: str, folder: Path) -> RunFolder | None:
    """Find the run below a folder that wrote a file of this name last."""
    try:
        found = max(folder.glob(f"*/{name}"), key=lambda path: path.stat().st_mtime, default=None)
    except OSError:
        return None
    return None if found is None else RunFolder(found.parent)


def newest_checkpoint(run_dir: Path) -> int:
    """Read the updates of the newest checkpoint from its name; 0 if there is none."""
    names = [path.stem for path in (run_dir / "checkpoints").glob("*.safetensors")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def _padded(text: str) -> str:
    return text.rstrip("\n").ljust(_RESULT_BYTES - 1) + "\n"


def time_so_far(run_dir: Path) -> float:
    """Compute the duration of a run over all its resumed parts, s; a killed part lasts until its last metrics."""
    try:
        result = read_result(run_dir)
        time_s, started = float(result["time_s"]), float(result["started"])
        lines = tail(run_dir / METRICS_NAME) if result["status"] == "running" else []
        # The last line may be cut off, so the newest of the last two counts.
        seen = max((float(found[1]) for line in lines[-2:] if (found := _TIME.match(line))), default=started)
    except (OSError, ValueError, LookupError, TypeError):
        return 0.0
    total = time_s + max(0.0, seen - started)
    return total if math.isfinite(total) else 0.0


def last_metric(run_dir: Path, name: str) -> float:
    """Read the newest finite value of a metric from the end of `metrics.jsonl`; 0 if there is none."""
    for line in reversed(tail(run_dir / METRICS_NAME)):
        with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):  # cut off, or another kind
            value: Any = json.loads(line)["metrics"].get(name)
            if isinstance(value, float) and math.isfinite(value):
                return value
    return 0.0


def read_result(run_dir: Path) -> dict[str, Any]:
    """Read `result.json`; raises `OSError`, or `ValueError` if it is not a JSON object."""
    result = parse_json((run_dir / RESULT_NAME).read_text(encoding="utf-8"))
    if not isinstance(result, dict):
        raise ValueError(f"it is a {type(result).__name__}, not an object")
    return result


def tail(path: Path, max_bytes: int = _TAIL_BYTES) -> list[str]:
    """Read the last lines of a file, the first of which may be cut off; [] if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - max_bytes))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"
