"""`temporary_run`: a run for the time of a `with`, for programs, notebooks and tests that use parts alone."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from redis.exceptions import RedisError

from surreal.base.errors import ConfigError
from surreal.base.system.files import ADDRESS_VARIABLE
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.server.embedded import EmbeddedRedis

logger = logging.getLogger(__name__)


@contextmanager
def temporary_run(name: str = "temporary", *, maxmemory_bytes: int = 512 << 20) -> Iterator[RedisClient]:
    """Give a client of a run that nobody else has, in the Redis of $SURREAL_REDIS, else in one that is started.

        with temporary_run() as client:
            sender, replay = ExpSender(client), UniformReplay(client)

    At the end the server is stopped; of one that was there before, the run's keys are removed.

    Args:
        name: that the run's id begins with: letters, digits, `.`, `_`, `-`.
        maxmemory_bytes: bound of a server that is started, >= 4 MiB; raising it lets replays be larger.

    Raises:
        ConfigError: $SURREAL_REDIS is no address.
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
                _delete(client)


def _delete(client: RedisClient) -> None:
    try:
        client.delete_run()
    except RedisError as error:
        logger.warning("what %s holds of run %s stays there: %s", client.address, client.run, error)
