"""The Redis servers of a run, as the launcher uses them: its own, or named ones."""

from __future__ import annotations

import logging
import socket
from collections.abc import Container
from contextlib import ExitStack
from pathlib import Path

import redis

from surreal.base.errors import SurrealError
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.owners import Keeper
from surreal.distributed.telemetry.heartbeats import live_processes

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5.0
_RETRY_TIMEOUT_S = 2.0


class RunServers:
    """Connects a launcher to its run's Redis, or starts one; raises `RedisUnavailableError` if it does not answer.

    Args:
        folder: folder of the run, for an append-only file.
        address: from the command line; overrides the configuration.
    """

    def __init__(self, config: Config, run: str, folder: Path, address: str | None, stack: ExitStack) -> None:
        self._run = run
        self._stack = stack
        self._keeper: Keeper | None = None
        address = address or config.redis.address
        if address is None:
            appendonly = folder / "redis" if config.redis.appendonly else None
            server = EmbeddedRedis(maxmemory_bytes=config.own_redis_bytes, appendonly_dir=appendonly)
            stack.callback(server.stop)
            server.start()
            self._keeper = Keeper(server, config.run.restart_limit)
            address = server.address
        self.address = address  #: for the run's processes
        self.is_own = self._keeper is not None  #: whether the server was started here and ends with the run
        self.client = self._connect(address)  #: client of the run: configuration, heartbeats, log
        replay_clients = [self._connect(replay_address) for replay_address in config.replay_addresses]
        #: on the same server, unless the configuration names others
        self.replay = ReplayShards(replay_clients, config.num_shards)
        self.parameter_client = self._connect(config.redis.parameter_address)

    def keep(self) -> None:
        if self._keeper is not None:
            self._keeper.keep()

    def has_experience(self) -> bool:
        """Whether a replay server holds steps of the run; one that is away counts as empty."""
        counts = [stream.client.attempt(stream.counts, what="count the steps") for stream in self.replay.streams()]
        return any(each is not None and each.live_steps for each in counts)

    def clear(self, ended: Container[int]) -> None:
        """Remove the run's keys from servers that continue, unless processes that have not `ended` use them."""
        try:
            here = socket.gethostname()
            if all(beat.host == here and beat.pid in ended for beat in live_processes(self.client)):
                self._delete_run()
        except (SurrealError, redis.RedisError) as error:
            logger.warning("the run's keys stay in Redis: %s", error)

    def _delete_run(self) -> None:
        clients = (*self.replay.clients, self.parameter_client, self.client)
        failure: Exception | None = None
        for client in {id(client): client for client in clients}.values():
            if client is not self.client or not self.is_own:
                try:
                    client.delete_run()
                except redis.RedisError as error:  # the other servers' keys are removed anyway
                    failure = failure or error
        if failure is not None:
            raise failure

    def _connect(self, address: str | None) -> RedisClient:
        if address is None:
            return self.client
        client = self._stack.enter_context(RedisClient(address, run=self._run, retry_timeout_s=_RETRY_TIMEOUT_S))
        client.check_server(timeout_s=_CONNECT_TIMEOUT_S)
        return client
