"""What `--stay` does when a run has ended: nothing, until a signal comes or the run goes on.

An engine such as Kubernetes starts again whatever ends, and would start the run again with it.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence

import redis

from surreal.base.errors import SurrealError
from surreal.base.liveness.health import HealthFile, Vitals
from surreal.base.liveness.probe import OVER
from surreal.distributed.connection.client import RedisClient
from surreal.run.process import registry

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.5
_LOOK_INTERVAL_S = 5.0


def stay(client: RedisClient, reason: str, signals: Sequence[signal.Signals], health: HealthFile) -> None:
    """Stay until a signal comes, or `surreal stop --undo` lets the run go on.

    Args:
        client: of the run, closed at the end.
        reason: why this process has nothing to do any more.
        signals: those that have come, which grows.
        health: of this process.
    """
    health.look = lambda: Vitals(OVER)
    health.write()
    logger.info("%s; staying until a signal comes, or `surreal stop %s --undo`", reason, client.run)
    looked_s, was_over = -_LOOK_INTERVAL_S, False
    with client:
        while not signals:
            if time.monotonic() - looked_s >= _LOOK_INTERVAL_S:
                looked_s = time.monotonic()
                is_over = _is_over(client)
                if was_over and is_over is False:
                    logger.info("run %s goes on", client.run)
                    return
                # This process may know of the end before the run does.
                was_over = was_over or is_over is True
            time.sleep(_POLL_INTERVAL_S)


def _is_over(client: RedisClient) -> bool | None:
    """Whether the run has ended; None if nobody knows: Redis is away, or was emptied."""
    try:
        return registry.is_over(client)
    except (redis.RedisError, SurrealError) as error:
        logger.debug("nobody knows whether run %s goes on: %s", client.run, error)
        return None
