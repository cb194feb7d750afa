"""The health of `surreal redis`: whether the server behind it answers, for `surreal health redis`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from surreal.base.liveness.health import HealthFile, Vitals, health_path
from surreal.base.liveness.probe import ENDING, STARTING, WORKING
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.embedded import EmbeddedRedis


def serve_and_tell(
    server: EmbeddedRedis,
    stop: threading.Event,
    on_ready: Callable[[EmbeddedRedis], None],
    *,
    drain_s: float = 0.0,
) -> None:
    """Serve until `stop` is set, and say how the server is where `$SURREAL_HEALTH` names a file.

    Args:
        server: not started yet.
        stop: ends it.
        on_ready: called when it answers, after it has loaded what it kept.
        drain_s: how long to keep serving after `stop` while clients are connected.
    """
    is_ready = threading.Event()

    def begin(server: EmbeddedRedis) -> None:
        is_ready.set()
        on_ready(server)

    def look() -> Vitals:
        if stop.is_set() or not is_ready.is_set():
            return Vitals(ENDING if stop.is_set() else STARTING)
        return Vitals(WORKING, hangs_in="" if answers(server.address) else "redis-server does not answer")

    with HealthFile("redis", look, health_path(os.environ)):
        server.serve(stop, begin, drain_s=drain_s)


def answers(address: str) -> bool:
    """Whether a server answers; an error counts, such as a missing password or a full disk (MISCONF)."""
    with RedisClient(address) as client:
        try:
            client.redis.ping()
        except (AuthenticationError, BusyLoadingError, ResponseError):
            return True
        except RedisError:
            return False
        return True
