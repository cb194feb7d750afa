"""What `--stay` does when a run has ended: nothing, until a signal comes or the run goes on.

An engine such as Kubernetes starts again whatever ends, and would start the run again with it.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Sequence

import redis

from surreal.distributed.connection.client import RedisClient
from surreal.errors import SurrealError
from surreal.main.process import registry
from surreal.utils.liveness.health import HealthFile, Vitals
from surreal.utils.liveness.probe import OVER

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.5
_LOOK_INTERVAL_S = 5.0


def stay(client: RedisClient, reason: str, signals: Sequence[signal.Signals], health: HealthFile) -> None:
    """Stay until a signal comes, or `surreal stop --undo` lets the run go on.

    Args:
        client: of the run, closed at the end.
        reason: why the run has ended.
        signals: those that have come, which grows.
        health: of this process.
    """
    health.look = lambda: Vitals(OVER)
    health.write()
    logger.info("run %s has ended: %s; staying until a signal comes, or `surreal stop %s --undo`",
                client.run, reason, client.run)  # fmt: skip
    looked_s = time.monotonic()
    with client:
        while not signals:
            time.sleep(_POLL_INTERVAL_S)
            if time.monotonic() - looked_s >= _LOOK_INTERVAL_S:
                looked_s = time.monotonic()
                if _goes_on(client):
                    logger.info("run %s goes on", client.run)
                    return


def _goes_on(client: RedisClient) -> bool:
    try:
        return registry.is_open(client)
    except (redis.RedisError, SurrealError) as error:
        logger.debug("nobody knows whether run %s goes on: %s", client.run, error)
        return False
