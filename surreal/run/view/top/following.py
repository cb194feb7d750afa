"""`Follower`: looks at a run from outside, second by second, in one round trip each time.

What a run's processes say of themselves is in their heartbeats; only the rounds of evaluation that were played before
are read from elsewhere, once.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from redis.exceptions import RedisError

from surreal.base.errors import ConfigError, RedisUnavailableError, SurrealError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import parse_heartbeats
from surreal.run.process import registry
from surreal.run.view.live.estimate import RunLimits
from surreal.run.view.live.history import History
from surreal.run.view.live.onlooker import Onlooker
from surreal.run.view.live.snapshot import Snapshot, summarize_processes

logger = logging.getLogger(__name__)

#: Rounds of evaluation that are read at the beginning, at most.
_MAX_ROUNDS = 256


class Follower:
    """Follows one run.

    Args:
        client: of the run.

    Attributes:
        stop_reason: why the run ends or has ended; "" while it goes on.
    """

    def __init__(self, client: RedisClient) -> None:
        self.stop_reason = ""
        self._client = client
        self._onlooker = Onlooker(self._take)
        self._was_alive = False
        self._knows_anybody = False
        self._is_away = False

    @property
    def snapshot(self) -> Snapshot:
        """The newest one."""
        return self._onlooker.snapshot

    def look(self) -> bool:
        """Look at the run; returns whether Redis was there."""
        self._is_away = not self._onlooker.look()
        return not self._is_away

    @property
    def is_over(self) -> bool:
        """Whether the run has ended: none of it is alive, or its own Redis is gone, after it was told to end.

        Or it was alive, and all of it has ended in order.
        """
        if self.stop_reason and (self._is_away or not self.snapshot.alive):
            return True
        return self._was_alive and not self._knows_anybody

    def ask_to_stop(self) -> bool:
        """Ask the run to end, with `surreal top` for a reason; returns whether Redis took it."""
        try:
            registry.request_stop(self._client, "surreal top")
        except (RedisError, SurrealError) as error:
            logger.debug("the run was not told: %s", error)
            return False
        return True

    def limits(self) -> RunLimits:
        """What ends the run, by its configuration; nothing, if it has not registered one."""
        try:
            return RunLimits.of(registry.stored_config(self._client))
        except ConfigError as error:
            logger.debug("no limits are known: %s", error)
            return RunLimits()

    def history(self, now_s: float) -> History:
        """The rounds of evaluation before now, as far as Redis has them.

        Args:
            now_s: by the clock of whoever adds to it.
        """

        def read() -> Any:
            pipeline = self._client.redis.pipeline(transaction=False)
            pipeline.time()
            pipeline.xrevrange(self._client.run_keys.scores, count=_MAX_ROUNDS)
            return pipeline.execute()

        (seconds, _), entries = self._client.retry(read, what="read the scores")
        history = History()
        for _, fields in reversed(entries):
            if (found := _round(fields.get(b"round", b""))) is not None:
                number, time, mean_return = found
                history.add_round(mean_return, number + 1, now_s - (seconds - time))
        return history

    def _take(self) -> Snapshot:
        keys = self._client.run_keys

        def read() -> Any:
            pipeline = self._client.redis.pipeline(transaction=False)
            pipeline.time()
            pipeline.hgetall(keys.processes)
            pipeline.get(keys.stop)
            return pipeline.execute()

        answer = self._client.attempt(read, what="look at the run")
        if answer is None:
            raise RedisUnavailableError("no answer", address=self._client.address)
        (seconds, micros), beats, stop = answer
        snapshot = summarize_processes(parse_heartbeats(beats.values(), now_s=seconds + micros / 1e6))
        self.stop_reason = stop.decode(errors="replace") if stop else self.stop_reason if not snapshot.alive else ""
        self._was_alive |= bool(snapshot.alive)
        self._knows_anybody = bool(snapshot.processes)
        return snapshot


def _round(text: bytes) -> tuple[int, float, float] | None:
    """Number, time and mean return of a round; None if the text is none. A mean that is no number is NaN."""
    try:
        data = json.loads(text)
        mean_return = data["mean_return"]
        found = int(data["round"]), float(data["time"]), math.nan if mean_return is None else float(mean_return)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return found if math.isfinite(found[1]) else None
