"""Listing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from surreal.base.errors import ConfigError, SurrealError
from surreal.base.system.files import parse_json
from surreal.distributed.connection.client import RedisClient
from surreal.run.build.kept import round_lines
from surreal.run.process import registry
from surreal.run.process.finding import is_run_folder, is_written_to
from surreal.run.process.run_folder import RESULT_NAME, RUNS_FOLDER, RunFolder
from surreal.run.session.scoring.best import read_best
from surreal.run.view.reader import take_snapshot

#: `killed`: it was running, and no process of it is alive; `over`: Redis alone knows it, and no process is alive;
#: `unreadable`: a folder that looks like a run's, but does not say how the run is doing.
Status = Literal["running", "finished", "interrupted", "failed", "killed", "over", "unreadable"]
STATUSES: tuple[Status, ...] = ("running", "finished", "interrupted", "failed", "killed", "over", "unreadable")
#: How much of the end of a file of metrics is read to know how far a run is, bytes.
_TAIL_BYTES = 16 << 10


@dataclass(frozen=True)
class ListedRun:
    """One run, as far as it says how it is doing."""

    run: str  #: its id
    status: Status
    folder: Path | None = None  #: None: only Redis knows it
    name: str = ""  #: of its configuration
    seed: int | None = None
    reason: str = ""  #: why it ended; of one that is unreadable, what is wrong
    started: float = 0.0  #: when it began or was resumed last, s since 1970; 0: nobody knows
    time_s: float = 0.0  #: how long it took, or has taken so far
    env_steps: int = 0
    updates: int = 0
    best_return: float | None = None  #: mean return of the best round of its evaluation
    is_in_redis: bool = False  #: whether the Redis that was asked knows it

    @property
    def is_alive(self) -> bool:
        """Whether processes of it are at work."""
        return self.status == "running"

    @property
    def label(self) -> str:
        """What a person calls it: the name of its folder, else its id."""
        return self.run if self.folder is None else self.folder.name

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"folder": None if self.folder is None else str(self.folder)}


def list_runs(folders: Iterable[Path] = (RUNS_FOLDER,), in_redis: Iterable[ListedRun] = ()) -> list[ListedRun]:
    """List the runs of some folders, and those that a Redis knows; each once, the oldest first.

    Args:
        folders: each a run's own, one of many runs, or one that holds a folder `runs`, as that of a sweep; one that
            does not exist holds none.
        in_redis: what `runs_in_redis` gave.

    Raises:
        ConfigError: a folder cannot be read.
    """
    found = [run for folder in folders for run in _in_folder(folder)]
    found = list({run.folder: run for run in found}.values())
    known = {run.run: run for run in in_redis}
    ids = {run.run for run in found}
    found = [_merged(run, known.get(run.run)) for run in found] + [known[run] for run in known if run not in ids]
    return sorted(found, key=lambda run: (run.started, run.label))


def read_run(folder: Path) -> ListedRun:
    """Look at the folder of a run; what is half written or makes no sense is said, not raised."""
    run = RunFolder(folder).read_run() or folder.name
    try:
        result = parse_json((folder / RESULT_NAME).read_text(encoding="utf-8"))
        listed = _from_result(result, run, folder)
    except FileNotFoundError:
        return ListedRun(run, "unreadable", folder, reason=f"it has no {RESULT_NAME}")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        return ListedRun(run, "unreadable", folder, reason=f"its {RESULT_NAME} makes no sense: {_first_line(error)}")
    if listed.status != "running":
        return listed
    if not is_written_to(folder):
        return replace(
            listed, status="killed", **_so_far(folder, is_alive=False, started=listed.started, earlier_s=listed.time_s)
        )
    return replace(listed, **_so_far(folder, is_alive=True, started=listed.started, earlier_s=listed.time_s))


def last_round(folder: Path) -> dict[str, Any] | None:
    """The newest round of the evaluation in a run's folder, None if there is none."""
    rounds = round_lines(folder / "eval" / "scores.jsonl", warns=False)
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
    best = result.get("best") or {}
    value = best.get("mean_return")
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
        best_return=_finite(value) if isinstance(value, int | float) else None,
    )


def _so_far(folder: Path, *, is_alive: bool, started: float, earlier_s: float) -> dict[str, Any]:
    """What `result.json` does not say of a run before its end; `earlier_s` is its time before it was resumed."""
    best = read_best(folder / "eval")
    round_ = last_round(folder) or {}
    last_seen, step = _last_metrics(folder / "metrics.jsonl")
    until = time.time() if is_alive else last_seen
    return {
        "time_s": earlier_s + (max(0.0, until - started) if started and until else 0.0),
        "env_steps": max(step, _count(round_.get("global_step"))),
        "updates": _count(round_.get("updates")),
        "best_return": None if best is None else float(best["mean_return"]),
    }


def _last_metrics(path: Path) -> tuple[float, int]:
    """Time and env step of the newest line of metrics."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return 0.0, 0
    for line in reversed(lines):
        try:
            row = parse_json(line)
            return float(row["time"]), int(row["step"])
        except (ValueError, TypeError, KeyError, OverflowError):  # cut off at either end, or broken
            continue
    return 0.0, 0


def _merged(run: ListedRun, known: ListedRun | None) -> ListedRun:
    """A run of a folder, with what Redis says of it besides: it may be at work on another machine."""
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


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


_TIMEOUT_S = 5.0


def runs_in_redis(address: str) -> list[ListedRun]:
    """The runs that a Redis knows, oldest first.

    Raises:
        ConfigError: the address is none.
        RedisUnavailableError: it does not answer.
    """
    with open_client(address) as client:
        client.check_server(timeout_s=_TIMEOUT_S)
        entries = registry.list_runs(client)
    found = []
    for entry in entries:
        with suppress(ConfigError), open_client(address, entry.run) as client:  # a name that is none of ours
            found.append(_from_redis(client, entry.title, entry.created))
    return found


def open_client(address: str, run: str = "default") -> RedisClient:
    """A client of a run, which does not wait long.

    Raises:
        ConfigError: the address is none.
    """
    try:
        return RedisClient(address, run=run, retry_timeout_s=_TIMEOUT_S)
    except ValueError as error:
        raise ConfigError(str(error), key="--redis") from error


def _from_redis(client: RedisClient, title: str, created: float) -> ListedRun:
    snapshot, reason = take_snapshot(client), registry.stop_reason(client)
    is_alive = bool(snapshot.alive)
    seed: int | None = None
    with suppress(SurrealError):  # nobody has registered a configuration, or it is one of another version
        seed = registry.stored_config(client).seed
    score = _score(client)
    return ListedRun(
        run=client.run,
        status="running" if is_alive else "over",
        name=title,
        seed=seed,
        reason=reason,
        started=created,
        time_s=max(0.0, time.time() - created) if is_alive else 0.0,
        env_steps=snapshot.env_steps,
        updates=snapshot.updates,
        best_return=snapshot.best_return if score is None else score,
        is_in_redis=True,
    )


def _score(client: RedisClient) -> float | None:
    """Mean return of the best round, as an evaluation without a launcher sends it."""
    text: Any = client.retry(lambda: client.redis.hget(client.run_keys.best, "score"), what="read the best score")
    try:
        return float(json.loads(text)["mean_return"]) if text else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
