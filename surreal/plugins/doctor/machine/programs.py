"""The redis-server that a run starts for itself: is there one, and does it start?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from surreal.base.errors import RedisUnavailableError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.embedded import MIN_MAXMEMORY_BYTES, EmbeddedRedis
from surreal.distributed.server.files import find_redis_server
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.machine.faults import NO_SERVER, SERVER_FAILS

_START_TIMEOUT_S = 8.0


def redis_program(*, find: Callable[[], Path] = find_redis_server) -> Iterator[Finding]:
    """Start a redis-server for a moment.

    Args:
        find: gives its path.
    """
    try:
        program = find()
    except RedisUnavailableError as error:
        yield NO_SERVER.found(str(error).partition(";")[0])
        return
    try:
        with (
            EmbeddedRedis(
                maxmemory_bytes=MIN_MAXMEMORY_BYTES, program=program, start_timeout_s=_START_TIMEOUT_S
            ) as server,
            RedisClient(server.address) as client,
        ):
            version = ".".join(map(str, client.check_server(timeout_s=_START_TIMEOUT_S)))
    except (RedisUnavailableError, OSError) as error:
        yield SERVER_FAILS.found(" ".join(str(error).split()))
        return
    yield ok(f"a run can start its own Redis: {program}, version {version}")
