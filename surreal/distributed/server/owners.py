"""Owners of an embedded server: `temporary_run` for a `with` block, and `Keeper`, which restarts a server that died."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from redis.exceptions import RedisError

from surreal.base.errors import ConfigError, RedisUnavailableError
from surreal.base.ranges import NonNegativeInt, checked
from surreal.base.system.files import ADDRESS_VARIABLE
from surreal.base.system.health import RecentDeaths
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.server.embedded import EmbeddedRedis

logger = logging.getLogger(__name__)


@contextmanager
def temporary_run(name: str = "temporary", *, maxmemory_bytes: int = 512 << 20) -> Iterator[RedisClient]:
    """Yield a client of a new run, in the Redis of $SURREAL_REDIS, or else in one that is started.

        with temporary_run() as client:
            sender, replay = ExpSender(client), UniformReplay(client)

    At the end, a started server is stopped; from the Redis of $SURREAL_REDIS, the run's keys are removed.

    Args:
        name: beginning of the run's id: letters, digits, `.`, `_`, `-`.
        maxmemory_bytes: bound of a started server, >= 4 MiB; raising it lets replays be larger.

    Raises:
        ConfigError: $SURREAL_REDIS is not an address.
        ValueError: the name or the bound is not valid.
        RedisUnavailableError: there is no Redis at this address, or no redis-server to start.
    """
    run = check_name(f"{name}-{secrets.token_hex(4)}", "run id")
    given = os.environ.get(ADDRESS_VARIABLE)
    with ExitStack() as stack:
        address = given or stack.enter_context(EmbeddedRedis(maxmemory_bytes=maxmemory_bytes)).address
        try:
            client = stack.enter_context(RedisClient(address, run=run))
        except ValueError as error:
            raise ConfigError(f"{error}; it is what ${ADDRESS_VARIABLE} says", key=ADDRESS_VARIABLE) from error
        client.check_server()
        try:
            yield client
        finally:
            if given:
                try:
                    client.delete_run()
                except RedisError as error:
                    logger.warning("what %s holds of run %s stays there: %s", client.address, client.run, error)


class Keeper:
    """Restarts a server that died, unless it dies more than `restart_limit` times within a minute; see `keep`."""

    @checked
    def __init__(self, server: EmbeddedRedis, restart_limit: NonNegativeInt, *, advice: str = "see its log") -> None:
        self._server = server
        self._restart_limit = restart_limit
        self._advice = advice
        self._deaths = RecentDeaths()

    def keep(self) -> None:
        """Start the server again, at the same address, if it died; raises `RedisUnavailableError` if too often."""
        if self._server.is_alive:
            return
        if self._deaths.add() > self._restart_limit:
            times = f"{len(self._deaths)} times within {self._deaths.window_s:.0f} s"
            raise RedisUnavailableError(f"redis-server ended {times}; {self._advice}")
        logger.warning("redis-server ended; starting it again")
        self._server.restart()
