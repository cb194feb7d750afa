"""All runs that the dashboard knows: of its folders, and of its Redis."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from surreal.base.errors import SurrealError
from surreal.plugins.dashboard.sources.live import LiveRun, OpenLive
from surreal.plugins.dashboard.sources.watched import Seldom, WatchedRun, key_of
from surreal.run.view.listing import ListedRun, list_runs, runs_in_redis

logger = logging.getLogger(__name__)

#: How often folders are listed, and a Redis is asked which runs it has, at most, in s.
LIST_INTERVAL_S = 3.0
REDIS_INTERVAL_S = 10.0
#: Runs that are shown, the newest ones, and runs whose curves are kept in memory.
MAX_RUNS = 500
MAX_WATCHED = 24


class Runs:
    """The runs, newest first.

    Args:
        folders: each a run's own, or one of many runs.
        redis: address of a Redis with runs, perhaps of other machines; None: none.
        open_live: makes what looks at a run in Redis.
        list_interval_s: see LIST_INTERVAL_S.
    """

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
        """All runs by their keys."""
        return self._listed.get()[0]

    def problem(self) -> str:
        """Why some runs may be missing; "" if none are."""
        return self._listed.get()[1] or self._in_redis.get()[1]

    def watch(self, key: str) -> WatchedRun | None:
        """A run; None if there is no such run any more. The runs that were watched least lately are let go."""
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
        """Close what is open."""
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
