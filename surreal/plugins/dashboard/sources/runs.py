"""The runs of folders and of a Redis, read no more often than needed: all of them, and the data of one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from surreal.base.errors import SurrealError
from surreal.plugins.dashboard.sources.live import Live, LiveRun, OpenLive
from surreal.plugins.recorded.files import RunHistory
from surreal.plugins.recorded.history import History
from surreal.plugins.recorded.listing import ListedRun, list_runs, runs_in_redis
from surreal.plugins.recorded.settings import flat_settings, read_settings
from surreal.run.process.registry import plain_config
from surreal.run.process.run_folder import RunFolder

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Minimum time between two listings of the folders, and of the runs in Redis, s.
LIST_INTERVAL_S = 3.0
REDIS_INTERVAL_S = 10.0
#: Minimum time between two readings of a run: its state in Redis, its files, its settings, s.
LIVE_INTERVAL_S = 2.0
READ_INTERVAL_S = 1.0
SETTINGS_INTERVAL_S = 10.0
#: Maximum number of runs that are shown, the newest, and of runs whose curves are in memory.
MAX_RUNS = 500
MAX_WATCHED = 24
#: Bytes of the files that are read before a page is answered; the next answer has more.
_READ_BYTES = 8 << 20


class Seldom(Generic[T]):
    """The newest answer of an expensive function, which one thread at a time calls.

    The first caller waits for the answer. Later, one caller renews it while the others get the previous answer.
    """

    def __init__(self, ask: Callable[[], T], interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: list[T] = []
        self._asked = 0.0

    def get(self) -> T:
        if self._answers and (self._clock() - self._asked < self._interval_s or self._lock.locked()):
            return self._answers[0]
        with self._lock:
            if not self._answers or self._clock() - self._asked >= self._interval_s:
                self._answers = [self._ask()]
                self._asked = self._clock()
            return self._answers[0]


class Recorded(NamedTuple):
    """The curves of a run that have been read so far."""

    history: History
    progress: float  #: share of the files that has been read, 0 to 1
    skipped: int  #: lines that could not be read
    problem: str = ""


def key_of(run: ListedRun) -> str:
    """Return a run's key in URLs and in the page, which survives a restart of the dashboard."""
    return sha256((f"folder {run.folder}" if run.folder else f"redis {run.run}").encode()).hexdigest()[:16]


class WatchedRun:
    """The data of one run, read from files and Redis at most every few seconds."""

    def __init__(
        self,
        listed: ListedRun,
        redis: str | None,
        *,
        open_live: OpenLive = LiveRun,
        live_interval_s: float = LIVE_INTERVAL_S,
        read_interval_s: float = READ_INTERVAL_S,
    ) -> None:
        self.key = key_of(listed)
        self.listed = listed
        self._redis = redis
        self._open_live = open_live
        self._opened: LiveRun | None = None
        self._guard = threading.Lock()
        self._heard: dict[str, float] = {}
        self._last_reading: dict[str, float] = {}
        self._history = History() if listed.folder is None else RunHistory(listed.folder)
        self._live = Seldom(self._look, live_interval_s)
        self._recorded = Seldom(self._read, read_interval_s)
        self._settings = Seldom(self._read_settings, SETTINGS_INTERVAL_S)

    def recorded(self) -> Recorded:
        if self.listed.folder is None:
            self.live()
        return self._recorded.get()

    def live(self) -> Live | str:
        """Return its state in Redis; or the reason why it is unknown, which is "" for a run that is over."""
        return self._live.get()

    def settings(self) -> Mapping[str, Any]:
        return self._settings.get()

    def stop(self, reason: str) -> bool:
        """Ask it to end, and return whether this was the first request."""
        with self._guard:
            opened = self._open()
            if opened is None:
                raise SurrealError(f"{self.listed.label} is over, or its Redis is not known here")
            return opened.stop(reason)

    def close(self) -> None:
        with self._guard:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _read(self) -> Recorded:
        history = self._history
        if not isinstance(history, RunHistory):
            return Recorded(history, 1.0, 0)
        try:
            is_end = history.update(_READ_BYTES)
            total = history.total_bytes
        except OSError as error:
            return Recorded(history, 1.0, history.skipped, f"{error.filename}: {error.strerror}".lower())
        return Recorded(history, 1.0 if is_end else history.read_bytes / max(total, 1), history.skipped)

    def _read_settings(self) -> Mapping[str, Any]:
        if self.listed.folder is not None:
            return read_settings(self.listed.folder)
        live = self.live()
        config = live.config if isinstance(live, Live) else None
        return {} if config is None else flat_settings(plain_config(config))

    def _look(self) -> Live | str:
        with self._guard:
            try:
                opened = self._open()
                live = "" if opened is None else opened.look()
            except SurrealError as error:
                logger.debug("no look at %s: %s", self.listed.run, error)
                return str(error)
        if isinstance(live, Live) and self.listed.folder is None:
            self._remember(live)
        return live

    def _open(self) -> LiveRun | None:
        """Connect to the run's current Redis, which may differ after the run was resumed."""
        address, run = self._redis if self.listed.is_in_redis else None, self.listed.run
        if self.listed.folder is not None:
            found = RunFolder(self.listed.folder).read_address(self._redis)
            address, run = found if found is not None and self.listed.is_alive else (address, run)
        if self._opened is not None and self._opened.address != address:
            self._opened.close()
            self._opened = None
        if self._opened is None and address is not None:
            self._opened = self._open_live(
                address, run, title=self.listed.name, started=self.listed.started, folder=self.listed.folder
            )
        return self._opened

    def _remember(self, live: Live) -> None:
        """Add heartbeats to the curves of a run whose folder is elsewhere."""
        for beat in live.view.processes:
            if self._heard.get(beat.name) != beat.time:
                self._heard[beat.name] = beat.time
                self._history.add(beat.name, beat.time, live.view.env_steps, beat.metrics)
                if beat.reading.time > self._last_reading.get(beat.name, 0.0):
                    self._last_reading[beat.name] = beat.reading.time
                    self._history.add(beat.name, *beat.reading)


class Runs:
    """The runs of folders and of a Redis, newest first."""

    def __init__(
        self,
        folders: Sequence[Path],
        redis: str | None = None,
        *,
        open_live: OpenLive = LiveRun,
        list_interval_s: float = LIST_INTERVAL_S,
    ) -> None:
        self._folders = folders
        self._redis = redis
        self._open_live = open_live
        self._lock = threading.Lock()
        self._watched: dict[str, WatchedRun] = {}
        self._in_redis = Seldom(self._ask_redis, REDIS_INTERVAL_S)
        self._listed = Seldom(self._list, list_interval_s)

    def listed(self) -> dict[str, ListedRun]:
        return self._listed.get()[0]

    def problem(self) -> str:
        """Return the reason why runs may be missing; "" if none are."""
        return self._listed.get()[1] or self._in_redis.get()[1]

    def watch(self, key: str) -> WatchedRun | None:
        """Return a run, or None if it no longer exists; runs that were not watched for the longest time are closed."""
        listed = self.listed().get(key)
        with self._lock:
            watched = self._watched.pop(key, None)
            if listed is None:
                if watched is not None:
                    watched.close()
                return None
            if watched is None:
                watched = WatchedRun(listed, self._redis, open_live=self._open_live)
            watched.listed = listed
            self._watched[key] = watched
            while len(self._watched) > MAX_WATCHED:
                self._watched.pop(next(iter(self._watched))).close()
            return watched

    def close(self) -> None:
        with self._lock:
            for watched in self._watched.values():
                watched.close()
            self._watched.clear()

    def _list(self) -> tuple[dict[str, ListedRun], str]:
        in_redis, _ = self._in_redis.get()
        try:
            found, problem = list_runs(self._folders, in_redis), ""
        except SurrealError as error:
            found, problem = list(in_redis), str(error)
        return {key_of(run): run for run in reversed(found[-MAX_RUNS:])}, problem

    def _ask_redis(self) -> tuple[list[ListedRun], str]:
        if self._redis is None:
            return [], ""
        try:
            return runs_in_redis(self._redis), ""
        except SurrealError as error:
            logger.debug("no runs from Redis: %s", error)
            return [], str(error)
