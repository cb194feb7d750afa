"""Patience: calls operations until Redis answers, and knows meanwhile that it does not. Each client has one."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import RedisError

from surreal.distributed.retry import delays_s, is_refused, is_transient
from surreal.errors import RedisUnavailableError, StoppedError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Patience:
    """Calls operations on one Redis until it answers; any thread may.

    Args:
        address: of the server, for messages.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._rng = random.Random()
        self._lock = threading.Lock()
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether the last call, of any thread, met no server that answers."""
        return self._away_since is not None

    def call(self, operation: Callable[[], T], *, what: str, stop: threading.Event | None, timeout_s: float) -> T:
        """See `RedisClient.retry`."""
        deadline = time.monotonic() + timeout_s
        delays = delays_s(self._rng)
        while True:
            try:
                result = operation()
            except RedisError as error:
                if is_refused(error):
                    problem = f"refused to {what}: {error}; check user, password, certificates"
                    raise RedisUnavailableError(f"Redis at {self._address} {problem}", address=self._address) from error
                if not is_transient(error):
                    raise
                self._note_failure(error, what)
                delay = next(delays)
                if time.monotonic() + delay > deadline:
                    message = (
                        f"Redis at {self._address} did not answer in time to {what}: {error}; is it running there?"
                    )
                    raise RedisUnavailableError(message, address=self._address) from error
                if stop is None:
                    time.sleep(delay)
                elif stop.wait(delay):
                    raise StoppedError(f"stopped while waiting for Redis at {self._address} to {what}") from error
            else:
                if self._away_since is not None:
                    self._note_recovery()
                return result

    def _note_failure(self, error: RedisError, what: str) -> None:
        with self._lock:
            is_first = self._away_since is None
            if is_first:
                self._away_since = time.monotonic()
        level = logging.WARNING if is_first else logging.DEBUG
        logger.log(level, "Redis at %s: %s; trying again to %s", self._address, error, what)

    def _note_recovery(self) -> None:
        with self._lock:
            away_since, self._away_since = self._away_since, None
        if away_since is not None:
            logger.info("Redis at %s answers again after %.1f s", self._address, time.monotonic() - away_since)
