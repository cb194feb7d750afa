"""What the page knows of one run, read no more often than needed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar

from surreal.base.errors import SurrealError
from surreal.plugins.dashboard.sources.live import Live, LiveRun, OpenLive
from surreal.plugins.recorded.files import RunHistory
from surreal.plugins.recorded.history import History
from surreal.plugins.recorded.settings import flat_settings, read_settings
from surreal.run.process.registry import plain_config
from surreal.run.process.run_folder import RunFolder
from surreal.run.view.listing import ListedRun

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Seldom(Generic[T]):
    """The newest answer to a question that costs something.

    Whoever asks first waits for the answer; later, one asks again while the others are given the answer before.

    Args:
        ask: the question; called by one thread at a time.
        interval_s: how long an answer holds, >= 0.
        clock: seconds that only grow.
    """

    def __init__(self, ask: Callable[[], T], interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: list[T] = []
        self._asked = 0.0

    def get(self) -> T:
        """The answer."""
        if self._answers and (self._clock() - self._asked < self._interval_s or self._lock.locked()):
            return self._answers[0]
        with self._lock:
            if not self._answers or self._clock() - self._asked >= self._interval_s:
                self._answers = [self._ask()]
                self._asked = self._clock()
            return self._answers[0]


#: How often Redis is asked, and files are looked at, at most, in s.
LIVE_INTERVAL_S = 2.0
READ_INTERVAL_S = 1.0
SETTINGS_INTERVAL_S = 10.0
#: How much of the files is read before a page is answered; the next answer has more.
_READ_BYTES = 8 << 20


class Recorded(NamedTuple):
    """The curves of a run, as far as they have been read."""

    history: History
    progress: float  #: share of the files that has been read, 0 to 1
    skipped: int  #: lines that could not be read
    problem: str = ""


def key_of(run: ListedRun) -> str:
    """What a run is called in addresses and in the page: the same whenever the dashboard is started."""
    return sha256((f"folder {run.folder}" if run.folder else f"redis {run.run}").encode()).hexdigest()[:16]


class WatchedRun:
    """One run. What is asked of it comes out of files and Redis at most every few seconds.

    Args:
        listed: the run.
        redis: address of the Redis that knows it, if it has no address in its folder.
        open_live: makes what looks at Redis.
        live_interval_s: see LIVE_INTERVAL_S.
        read_interval_s: see READ_INTERVAL_S.
    """

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
        """Its curves."""
        if self.listed.folder is None:
            self.live()
        return self._recorded.get()

    def live(self) -> Live | str:
        """What Redis says of it; in words why nothing, "" where nobody is asked: the run is over."""
        return self._live.get()

    def settings(self) -> Mapping[str, Any]:
        """Its settings, without secrets."""
        return self._settings.get()

    def stop(self, reason: str) -> bool:
        """Ask it to end; returns whether this was the first to ask.

        Raises:
            SurrealError: it is over, or its Redis does not answer.
        """
        with self._guard:
            opened = self._open()
            if opened is None:
                raise SurrealError(f"{self.listed.label} is over, or its Redis is not known here")
            return opened.stop(reason)

    def close(self) -> None:
        """Close what is open."""
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
        """Connect to where the run is now; a run that was resumed may be elsewhere."""
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
        """Of a run whose folder is elsewhere, heartbeats are all there is: they make curves from now on."""
        for beat in live.view.processes:
            if self._heard.get(beat.name) != beat.time:
                self._heard[beat.name] = beat.time
                self._history.add(beat.name, beat.time, live.view.env_steps, beat.metrics)
                if beat.reading.time > self._last_reading.get(beat.name, 0.0):
                    self._last_reading[beat.name] = beat.reading.time
                    self._history.add(beat.name, *beat.reading)
