"""List runs and their state, from folders and from Redis, for every command about many runs.

Listing is cheap: for a run that is over, only `result.json` is read, and neither torch nor Redis is imported.

    list_runs([Path("runs")], runs_in_redis("replay-host:6379"))
"""

from __future__ import annotations

import difflib
import glob
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from surreal.base.errors import ConfigError
from surreal.base.system.files import parse_json
from surreal.run.build.checkpoints import read_best, round_lines
from surreal.run.process.finding import is_run_folder, is_written_to, named_folder, open_client
from surreal.run.process.run_folder import (
    CONFIG_NAME,
    METRICS_NAME,
    RESULT_NAME,
    RUNS_FOLDER,
    RunFolder,
    read_result,
    tail,
)

#: `killed`: it was running, and no process of it is alive; `over`: only Redis knows it, and no process is alive;
#: `unreadable`: a run's folder whose state cannot be read.
Status = Literal["running", "finished", "interrupted", "failed", "killed", "over", "unreadable"]
STATUSES: tuple[Status, ...] = get_args(Status)
#: How much of the end of the metrics is read to learn how far a run is, bytes.
_TAIL_BYTES = 16 << 10
_TIMEOUT_S = 5.0
#: How much of the beginning of a configuration is read, bytes; and the id of its environment there.
_HEAD_BYTES = 16 << 10
_ENVIRONMENT = re.compile(rb"^env:\n(?:[ -].*\n)*?  id: +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class ListedRun:
    """One run and its state."""

    run: str  #: id
    status: Status
    folder: Path | None = None  #: None: only Redis knows the run
    name: str = ""  #: name of its configuration
    seed: int | None = None
    reason: str = ""  #: why it ended; for an unreadable run, what is wrong
    started: float = 0.0  #: when it began or was last resumed, s since 1970; 0: unknown
    time_s: float = 0.0  #: duration so far
    env_steps: int = 0
    updates: int = 0
    best_return: float | None = None  #: mean return of the best evaluation round
    is_in_redis: bool = False  #: whether the Redis that was asked knows it
    environment: str = ""  #: id of its environment; "": unknown

    @property
    def is_alive(self) -> bool:
        return self.status == "running"

    @property
    def label(self) -> str:
        """Name for people: the folder's name, or the id if there is no folder."""
        return self.run if self.folder is None else self.folder.name

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"folder": None if self.folder is None else str(self.folder)}


def list_runs(folders: Iterable[Path] = (RUNS_FOLDER,), in_redis: Iterable[ListedRun] = ()) -> list[ListedRun]:
    """List the runs of folders and of a Redis, each once, oldest first.

    Args:
        folders: each the folder of a run, a folder of runs, or a folder that contains `runs`, such as a sweep's; a
            folder that does not exist has no runs.
        in_redis: result of `runs_in_redis`.

    Raises:
        ConfigError: a folder cannot be read.
    """
    found = [run for folder in folders for run in _in_folder(folder)]
    found = list({run.folder: run for run in found}.values())
    known = {run.run: run for run in in_redis}
    ids = {run.run for run in found}
    found = [_merged(run, known.get(run.run)) for run in found] + [known[run] for run in known if run not in ids]
    return sorted(found, key=lambda run: (run.started, run.label))


def find_runs(names: Sequence[str]) -> list[ListedRun]:
    """Find the runs that a person names, each once: `runs/demo`, `demo`, `runs/cartpole-*`, `runs`.

    Args:
        names: each a run's folder, a folder of runs, a pattern of folders, or a run's name or id.

    Raises:
        ConfigError: a name matches no run.
    """
    found: dict[Path | None, ListedRun] = {}
    for name in names:
        below = list_runs(_folders_of(name))
        if not below:
            known = [run.label for run in list_runs()]
            near = difflib.get_close_matches(Path(name).name, known, 1, 0.4)
            others = f"; {RUNS_FOLDER} has {', '.join(known[-3:])}"
            hint = others if known else f", and there is none in {RUNS_FOLDER.absolute()}"
            raise ConfigError(f"{name} is not a run{f'; did you mean {near[0]}?' if near else hint}", key="RUN")
        found.update((run.folder, run) for run in below)
    return list(found.values())


def _folders_of(name: str) -> list[Path]:
    places = (Path(name).expanduser(), RUNS_FOLDER / name)
    for path in places:
        if path.is_dir():
            return [path]
    if (folder := named_folder(name)) is not None:
        return [folder.path]
    for path in places:
        matches = [Path(match) for match in sorted(glob.glob(str(path))) if Path(match).is_dir()]
        if matches:
            return matches
    return []


def runs_in_redis(address: str) -> list[ListedRun]:
    """List the runs that a Redis knows, oldest first.

    Raises:
        ConfigError: the address is invalid.
        RedisUnavailableError: it does not answer.
    """
    from surreal.run.view.reader import RunReader

    with open_client(address) as client:
        client.check_server(timeout_s=_TIMEOUT_S)
        views = RunReader(client, reads_all=True, has_counts=True, is_patient=True).read_all()
    return [
        ListedRun(
            run=view.run,
            status="running" if view.alive else "over",
            name=view.title,
            environment=view.environment,
            seed=view.seed,
            reason=view.stop_reason,
            started=view.created,
            time_s=max(0.0, time.time() - view.created) if view.alive else 0.0,
            env_steps=view.env_steps,
            updates=view.updates,
            best_return=view.best_return,
            is_in_redis=True,
        )
        for view in views
    ]


def read_run(folder: Path) -> ListedRun:
    """Read the folder of a run. Errors do not raise, but mark it as unreadable."""
    run = RunFolder(folder).read_run() or folder.name
    try:
        listed = replace(_from_result(read_result(folder), run, folder), environment=_environment(folder))
    except FileNotFoundError:
        return ListedRun(run, "unreadable", folder, reason=f"it has no {RESULT_NAME}")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        problem = (str(error) or type(error).__name__).splitlines()[0]
        return ListedRun(run, "unreadable", folder, reason=f"its {RESULT_NAME} makes no sense: {problem}")
    if listed.status != "running":
        return listed
    is_alive = is_written_to(folder)
    return replace(listed, status="running" if is_alive else "killed", **_progress(listed, folder, is_alive=is_alive))


def last_round(folder: Path) -> dict[str, Any] | None:
    """Read the newest evaluation round in a run's folder."""
    rounds = list(round_lines(folder / "eval" / "scores.jsonl", warns=False))
    return rounds[-1] if rounds else None


def _in_folder(folder: Path) -> Iterator[ListedRun]:
    folder = folder.absolute()
    if is_run_folder(folder):
        yield read_run(folder)
        return
    if (folder / RUNS_FOLDER).is_dir():
        folder = folder / RUNS_FOLDER
    try:
        inside = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {(error.strerror or str(error)).lower()}") from error
    yield from (read_run(path) for path in inside if is_run_folder(path))


def _from_result(result: dict[str, Any], run: str, folder: Path) -> ListedRun:
    status = result["status"]
    if status not in STATUSES:
        raise ValueError(f"its status is {status!r}")
    best_return = (result.get("best") or {}).get("mean_return")
    return ListedRun(
        run=str(result.get("run") or run),
        status=status,
        folder=folder,
        name=str(result.get("name") or ""),
        seed=None if result.get("seed") is None else int(result["seed"]),
        reason=str(result.get("reason") or ""),
        started=_finite(result.get("started")),
        time_s=_finite(result.get("time_s")),
        env_steps=int(result.get("env_steps") or 0),
        updates=int(result.get("updates") or 0),
        best_return=_finite(best_return) if isinstance(best_return, int | float) else None,
    )


def _environment(folder: Path) -> str:
    path = folder / CONFIG_NAME
    try:
        return _environment_in(path, path.stat().st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=1024)
def _environment_in(path: Path, changed_ns: int) -> str:  # noqa: ARG001 - another time is another file
    """Find the id in a configuration as Surreal writes it, which takes much less time than reading all of it."""
    with path.open("rb") as file:
        found = _ENVIRONMENT.search(file.read(_HEAD_BYTES))
    return "" if found is None else found[1].decode(errors="replace").strip().strip("'\"")


def _progress(run: ListedRun, folder: Path, *, is_alive: bool) -> dict[str, Any]:
    """Read what `result.json` has only after the end; `run.time_s` is the time before the run was resumed."""
    best = read_best(folder / "eval")
    round_ = last_round(folder) or {}
    last_seen, step = _last_metrics(folder / METRICS_NAME)
    until = time.time() if is_alive else last_seen
    return {
        "time_s": run.time_s + (max(0.0, until - run.started) if run.started and until else 0.0),
        "env_steps": max(step, _count(round_.get("global_step"))),
        "updates": _count(round_.get("updates")),
        "best_return": None if best is None else float(best["mean_return"]),
    }


def _last_metrics(path: Path) -> tuple[float, int]:
    """Time and env step of the newest line of metrics."""
    for line in reversed(tail(path, _TAIL_BYTES)):
        try:
            row = parse_json(line)
            return float(row["time"]), int(row["step"])
        except (ValueError, TypeError, KeyError, OverflowError):  # cut off at either end, or broken
            continue
    return 0.0, 0


def _merged(run: ListedRun, known: ListedRun | None) -> ListedRun:
    """Add information from Redis to a run of a folder, because it may run on another machine."""
    if known is None:
        return run
    if not known.is_alive or run.is_alive:
        return replace(run, is_in_redis=True)
    return replace(
        run, status="running", reason="", is_in_redis=True, env_steps=max(run.env_steps, known.env_steps),
        time_s=max(run.time_s, time.time() - run.started),
    )  # fmt: skip


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _finite(value: object) -> float:
    number = float(value) if isinstance(value, int | float) else 0.0
    return number if math.isfinite(number) else 0.0
