"""Failover: a replica takes the place of a Redis that dies, and lacks what the Redis got last."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.access import ServerAccess
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.plugins.chaos.disturbances.processes import Disturbance, Kind, NotDoneError


class ReplicatedRedis:
    """A primary and its replica behind one address: a link to the socket of the server that is the primary now.

    Clients keep their address, as behind a virtual IP or a Kubernetes Service.

    Args:
        place: folder for the link and the servers' data.
        maxmemory_bytes: memory limit of each server.
    """

    def __init__(self, place: Path, *, maxmemory_bytes: int, program: Path | None = None) -> None:
        self._place, self._maxmemory_bytes, self._program = place, maxmemory_bytes, program
        self._access = ServerAccess(password=secrets.token_urlsafe())  # replicas connect over TCP
        self._link = place / "redis.sock"
        self._servers = ExitStack()
        self._count = 0

    @property
    def address(self) -> str:
        return self._access.socket_address(self._link)

    @property
    def pid(self) -> int:
        return self._primary.pid

    def __enter__(self) -> ReplicatedRedis:
        with self._servers:
            self._primary = self._start_server()
            self._replica = self._start_replica()
            self._servers = self._servers.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._servers.close()

    def kill(self) -> None:
        self._primary.kill()

    def start(self) -> None:
        self._primary.start()

    def replica(self) -> RedisClient:
        return RedisClient(self._replica.address)

    def detach(self) -> None:
        """Stop the replication: the replica keeps what it has. Raises `NotDoneError` if the replica does not follow the
        primary yet.
        """
        try:
            with self.replica() as client:
                state: Any = client.redis.info("replication")
                if state["role"] != "slave" or state["master_link_status"] != "up":
                    raise NotDoneError("the replica is not up to date")
                client.execute("REPLICAOF", "NO", "ONE")
        except RedisError as error:
            raise NotDoneError(f"the replica does not answer: {error}") from error

    def switch(self) -> None:
        """Kill the primary, put the replica in its place, and start another replica."""
        self._primary.kill()
        self._point_at(self._replica)
        self._primary.stop()
        self._primary = self._replica
        self._replica = self._start_replica()

    def _start_server(self) -> EmbeddedRedis:
        self._count += 1
        server = EmbeddedRedis(
            maxmemory_bytes=self._maxmemory_bytes,
            appendonly_dir=self._place / f"redis-{self._count}",
            port=0,
            access=self._access,
            program=self._program,
        )
        self._servers.enter_context(server)
        if self._count == 1:
            self._point_at(server)
        return server

    def _start_replica(self) -> EmbeddedRedis:
        with RedisClient(self._primary.address) as client:
            client.execute("CONFIG", "SET", "repl-diskless-sync-delay", 0)
        server = self._start_server()
        with RedisClient(server.address) as client:
            client.execute("CONFIG", "SET", "appendfsync", "always")
            client.execute("CONFIG", "SET", "masterauth", str(self._access.password))
            client.execute("REPLICAOF", "127.0.0.1", self._primary.port or 0)
        return server

    def _point_at(self, server: EmbeddedRedis) -> None:
        new = self._link.with_name("redis.sock.new")
        new.symlink_to(server.log_path.with_name("redis.sock"))
        new.replace(self._link)


@dataclass
class Failover(Disturbance):
    """The replica falls behind; at the end, the primary is killed, and the replica takes its place."""

    kind = Kind.FAILOVER

    target: str
    servers: ReplicatedRedis
    before: Callable[[RedisClient], object]  #: called right before the primary is killed, with a client of the replica
    is_open: bool = False

    def begin(self) -> None:
        self.servers.detach()
        self.is_open = True

    def end(self) -> None:
        if self.is_open:
            self.is_open = False
            with suppress(RedisError), self.servers.replica() as replica:
                self.before(replica)
            self.servers.switch()
            self.detail = f"process {self.servers.pid} is the primary now"
