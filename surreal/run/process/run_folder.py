"""A run's folder as its one writer sees it: its lock, its id, its configuration, where its Redis is, its result."""

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
from typing import Any

from surreal.base.errors import BusyError, ConfigError, FolderError
from surreal.base.system.files import FileLock, is_disk_full, parse_json, write_in_place, write_whole
from surreal.config import Config, to_yaml
from surreal.distributed.connection.address import FoundAddress
from surreal.run.process.ending import result_of

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
    """A run id that no other run has: name, local time, four random digits."""
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


class RunFolder:
    """A run's folder, from the side of its one writer: the launcher, or a learner without one.

        folder.claim()             # refused while another process writes there
        ...                        # all that can refuse is checked
        folder.begin(config, run)
        folder.write_address(address, run)
        folder.write_result(...)
        folder.release()

    Args:
        path: the folder; made by `claim`.

    Attributes:
        earlier_s: how long the run took before it was resumed; known from `begin` on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = FileLock(self.path / LOCK_NAME)
        self._made: list[Path] = []
        self._address = ""
        self.earlier_s = 0.0

    @property
    def config_path(self) -> Path:
        return self.path / CONFIG_NAME

    def require_new(self) -> None:
        """Refuse a folder that holds a run.

        Raises:
            ConfigError: it does.
        """
        if self.config_path.exists():
            raise ConfigError(
                f"{self.path} holds a run already; "
                "--resume goes on with it, --run NAME or --run-dir DIR begins another",
                key="--run-dir",
            )

    def claim(self) -> None:
        """Become the only writer, until `release` or the end of this process.

        Raises:
            BusyError: another process is it.
            ConfigError: there cannot be such a folder.
        """
        try:
            self._made = [path for path in (self.path, *self.path.parents) if not path.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            is_ours = self._lock.acquire()
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise ConfigError(f"{self.path} cannot be a run's folder: {problem}", key="--run-dir") from error
        if not is_ours:
            raise BusyError(
                f"{self.path} belongs to a run that is alive: {self._lock.holder()} writes there; "
                "`surreal stop` ends it, --run NAME or --run-dir DIR begins another"
            )

    def release(self) -> None:
        """Let another writer in; a folder in which no run began is as it was before."""
        self._remove_address()
        is_new = bool(self._made) and not self.config_path.exists()
        self._lock.release(is_removed=is_new)
        if is_new:
            shutil.rmtree(self.path / "redis", ignore_errors=True)  # of the run's own server
            # Of several that begin at once, the last one out removes the folder of all runs.
            common = [self.path.parent] if self.path.parent.name == RUNS_FOLDER.name else []
            for path in (*self._made, *common):
                with suppress(OSError):  # somebody has put something there
                    path.rmdir()

    def begin(self, config: Config, run: str, started: float) -> None:
        """Write down that a run begins here, or goes on; nothing can refuse it any more.

        Args:
            config: of the run, as resolved.
            run: its id.
            started: now, s since 1970.

        Raises:
            FolderError: it cannot be written.
        """
        text = to_yaml(config)
        self.earlier_s = time_so_far(self.path)
        self._write(RUN_NAME, f"{run}\n")
        # As long as the result will be, so that a disk that is full by then can take it.
        result = result_of(config, run, None, started=started, time_s=self.earlier_s)
        self._write(RESULT_NAME, _padded(_json(result)))
        self._write(CONFIG_NAME, text, is_secret=bool(_PASSWORD.search(text)))

    def write_address(self, address: str, run: str) -> None:
        """Say where the run's Redis is, and under which id; for this user only, since it may hold a password.

        Raises:
            FolderError: it cannot be written.
        """
        self._address = f"{address}\n{run}\n"
        self._write(ADDRESS_NAME, self._address, is_secret=True)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write how the run ended; on a full disk, over what `begin` has written.

        Raises:
            FolderError: it cannot be written.
        """
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
        """Whether a run began here, and nobody has written how it ended."""
        try:
            return bool(read_result(self.path)["status"] == "running")
        except (OSError, ValueError, KeyError):
            return False

    def sweep(self) -> None:
        """Remove what killed processes of the run left half written; none of them is alive any more."""
        for path in self.path.rglob(".*.tmp"):
            with suppress(OSError):
                path.unlink()

    def read_run(self) -> str | None:
        """The id of the run that is kept here, None if there is none."""
        try:
            return (self.path / RUN_NAME).read_text().strip() or None
        except OSError:
            return None

    def read_address(self, given: str | None = None) -> tuple[FoundAddress, str] | None:
        """Read where the run's Redis is and the run's id; None if the run is over.

        Args:
            given: the address that the user named, whose host may be sent secrets.
        """
        try:
            lines = (self.path / ADDRESS_NAME).read_text().split()
        except OSError:
            return None
        return (FoundAddress(lines[0], given), lines[1]) if len(lines) == 2 else None

    def _remove_address(self) -> None:
        """The run's Redis is gone, or none of our business any more; another's address stays."""
        path = self.path / ADDRESS_NAME
        with suppress(OSError):
            if self._address and path.read_text() == self._address:
                path.unlink()

    def _write(self, name: str, text: str, *, is_secret: bool = False) -> None:
        try:
            write_whole(self.path / name, text, mode=0o600 if is_secret else 0o666)
        except OSError as error:
            raise FolderError(f"{self.path / name} could not be written: {error}") from error


def newest_running(folder: Path = RUNS_FOLDER) -> RunFolder | None:
    """The newest run below a folder whose Redis address is there, None if no run is."""
    try:
        found = [path.parent for path in folder.glob(f"*/{ADDRESS_NAME}")]
        newest = max(found, key=lambda path: (path / ADDRESS_NAME).stat().st_mtime, default=None)
    except OSError:
        return None
    return None if newest is None else RunFolder(newest)


def newest_checkpoint(run_dir: Path) -> int:
    """Updates of the learner's newest checkpoint, by its name; 0 if there is none."""
    names = [path.stem for path in (run_dir / "checkpoints").glob("*.safetensors")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def _padded(text: str) -> str:
    """The same JSON, as long as the file is."""
    return text.rstrip("\n").ljust(_RESULT_BYTES - 1) + "\n"


def time_so_far(run_dir: Path) -> float:
    """How long a run took, s, all parts of one that was resumed; a part that was killed lasts to its last metrics."""
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
    """The newest finite value of a metric of any process, as far as the end of `metrics.jsonl` has one; else 0."""
    for line in reversed(tail(run_dir / METRICS_NAME)):
        with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):  # cut off, or another kind
            value: Any = json.loads(line)["metrics"].get(name)
            if isinstance(value, float) and math.isfinite(value):
                return value
    return 0.0


def read_result(run_dir: Path) -> dict[str, Any]:
    """Read `result.json`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a JSON object.
    """
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
