"""The map of a Redis Cluster: which server has a hash slot. Used by `RedisClient` and its connections.

The keys of a shard are in one hash slot, and so are all other keys of a run. So a client needs one server at a time,
and uses ordinary connections, as without a cluster (pipelines, blocking reads, calls that are not waited for, raw
ranges). A connection asks the map when it connects, and breaks when its hash slot has moved. The map is that of
redis-py's `RedisCluster`.

`SentinelMap` does the same for the primary of a Redis that Sentinels watch. They are asked again whenever a connection
to it breaks, with the TLS options of the address, and with the user and password of `$SURREAL_REDIS_SENTINEL_USER` and
`$SURREAL_REDIS_SENTINEL_PASSWORD` (or `..._PASSWORD_FILE`), because theirs are usually not those of the servers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, ResponseError
from redis.sentinel import Sentinel

from surreal.base.system.files import secret_of

#: Options of a connection that `RedisCluster` sets itself, or that belong to one server.
_OF_ONE_SERVER = frozenset({"host", "port", "db", "path"})


class ClusterMap:
    """The servers of a cluster and their hash slots, as last read. Thread-safe; the constructor does not connect."""

    def __init__(
        self, nodes: Sequence[tuple[str, int]], connection_class: type[Connection], options: Mapping[str, Any]
    ) -> None:
        self._nodes = nodes
        self._options = {key: value for key, value in options.items() if key not in _OF_ONE_SERVER}
        if issubclass(connection_class, SSLConnection):
            self._options["ssl"] = True
        self._lock = threading.Lock()
        self._redis: RedisCluster | None = None
        self._is_stale = False

    def primary_of(self, hash_slot: int) -> tuple[str, int]:
        """Return host and port of the server that has a hash slot; raises redis-py's `ConnectionError` without one."""
        try:
            node = self._connect().nodes_manager.get_node_from_slot(hash_slot)
        except RedisClusterException as error:
            self._is_stale = True
            raise RedisConnectionError(f"no server of the cluster has hash slot {hash_slot}: {error}") from error
        return str(node.host), int(node.port)

    def primaries(self) -> list[redis.Redis]:
        """Return clients of all primaries; raises redis-py's `ConnectionError` if no server answers."""
        try:
            return [node.redis_connection for node in self._connect().get_primaries()]
        except RedisClusterException as error:
            raise RedisConnectionError(str(error)) from error

    def forget(self) -> None:
        """Read the map again before the next answer, because a server contradicted it or did not answer."""
        self._is_stale = True

    def close(self) -> None:
        """Close all connections; the next use connects again."""
        with self._lock:
            if self._redis is not None:
                self._redis.close()
                self._redis = None

    def _connect(self) -> Any:
        """Return redis-py's client of the cluster, with a map that no server has contradicted.

        One thread reads a new map, which a server that hangs makes slow; the others use the old one meanwhile. If it
        is wrong, their connection breaks, and they read the map themselves.
        """
        cluster = self._redis
        if cluster is None:
            with self._lock:
                if self._redis is None:
                    startup = [ClusterNode(host, port) for host, port in self._nodes]  # type: ignore[no-untyped-call]
                    self._redis = RedisCluster(startup_nodes=startup, require_full_coverage=False, **self._options)
                    self._is_stale = False
                return self._redis
        if self._is_stale and self._lock.acquire(blocking=False):
            try:
                self._is_stale = False
                cluster.nodes_manager.initialize()
            except BaseException:
                self._is_stale = True
                raise
            finally:
                self._lock.release()
        return cluster


USER_VARIABLE = "SURREAL_REDIS_SENTINEL_USER"
#: With "_FILE": the file that contains it.
PASSWORD_VARIABLE = "SURREAL_REDIS_SENTINEL_PASSWORD"  # noqa: S105 - the name of a variable


@dataclass(eq=False, repr=False)
class SentinelMap:
    """Finds the primary of a service, as the Sentinels last named it. Thread-safe; the constructor does not connect."""

    sentinels: Sequence[tuple[str, int]]  #: (host, port) of each Sentinel
    service: str  #: name under which they watch the primary
    connection_class: type[Connection]  #: class of connections to the servers; Sentinels take TLS if these do
    options: Mapping[str, Any]  #: options of the servers' connections, of which Sentinels get timeouts and certificates

    def __post_init__(self) -> None:
        common = {name: value for name, value in self.options.items() if name.startswith(("socket_", "ssl_"))}
        common |= {"ssl": issubclass(self.connection_class, SSLConnection), "protocol": 2, "driver_info": None}
        common |= {"username": os.environ.get(USER_VARIABLE), "password": secret_of(os.environ, PASSWORD_VARIABLE)}
        self._sentinel = Sentinel(self.sentinels, sentinel_kwargs=common)  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()
        self._primary: tuple[str, int] | None = None

    def primary_of(self, hash_slot: int) -> tuple[str, int]:  # all of them are there
        """Return host and port of the primary; raises redis-py's `ConnectionError` if no Sentinel knows it."""
        with self._lock:
            if self._primary is None:
                try:
                    host, port = self._sentinel.discover_master(self.service)  # type: ignore[no-untyped-call]
                except ResponseError as error:  # it wants a password, or is not a Sentinel
                    raise RedisConnectionError(f"a Sentinel does not name the primary: {error}") from error
                self._primary = str(host), int(port)
            return self._primary

    def forget(self) -> None:
        """Ask the Sentinels before the next connection, because the last one broke."""
        self._primary = None

    def close(self) -> None:
        """Close the connections to the Sentinels; the next use connects again."""
        for sentinel in self._sentinel.sentinels:
            sentinel.close()
