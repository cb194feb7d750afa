"""Redis Cluster: where a hash slot is. Used by `RedisClient` alone.

The keys of a shard are in one hash slot, and so are all others of a run. So a client needs one server at a time, and
speaks to it on ordinary connections as it would without a cluster (pipelines, blocking reads, scripts that are not
waited for, raw ranges). These ask the map where their hash slot is when they connect, and break when it is elsewhere.
The map is that of redis-py's `RedisCluster`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, ConnectionPool, SSLConnection
from redis.exceptions import AskError, ReadOnlyError, RedisClusterException
from redis.exceptions import ConnectionError as RedisConnectionError

from surreal.distributed.connection.access.spoiled import with_clear_errors

#: Options of a connection that `RedisCluster` sets itself, or that belong to one server.
_OF_ONE_SERVER = frozenset({"host", "port", "db", "path"})


class ClusterMap:
    """The servers of a cluster and their hash slots, as last asked for. Thread-safe; the constructor does not connect.

    Args:
        nodes: (host, port) of servers to ask.
        connection_class: of connections to them.
        options: of these connections.
    """

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
        """Host and port of the server that has a hash slot.

        Raises:
            redis.exceptions.ConnectionError: no server answers, or none has the hash slot.
        """
        try:
            node = self._connect().nodes_manager.get_node_from_slot(hash_slot)
        except RedisClusterException as error:
            self._is_stale = True
            raise RedisConnectionError(f"no server of the cluster has hash slot {hash_slot}: {error}") from error
        return str(node.host), int(node.port)

    def primaries(self) -> list[redis.Redis]:
        """Clients of all masters.

        Raises:
            redis.exceptions.ConnectionError: no server answers.
        """
        try:
            return [node.redis_connection for node in self._connect().get_primaries()]
        except RedisClusterException as error:
            raise RedisConnectionError(str(error)) from error

    def forget(self) -> None:
        """Ask again before the next answer: a server did not answer, or does not have what it had."""
        self._is_stale = True

    def close(self) -> None:
        """Close all connections; the next use connects anew."""
        with self._lock:
            if self._redis is not None:
                self._redis.close()
                self._redis = None

    def _connect(self) -> Any:
        """Give redis-py's client of the cluster, with a map that no server has contradicted.

        While one thread asks for a new map, which a server that hangs makes slow, the others use the old one: if it is
        wrong, their connection breaks, and they ask themselves.
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


def hash_slot_pool(
    cluster: ClusterMap, hash_slot: int, connection_class: type[Connection], options: Mapping[str, Any]
) -> ConnectionPool:
    """Connections to the server that has a hash slot, wherever it moves."""
    slot_class = _SlotSSLConnection if issubclass(connection_class, SSLConnection) else _SlotConnection
    managed = with_clear_errors(slot_class)
    return redis.ConnectionPool(connection_class=managed, cluster=cluster, hash_slot=hash_slot, **options)


class _SlotMixin:
    """A connection that finds out where to connect to, and breaks when its server no longer has the hash slot."""

    host: str
    port: int

    def __init__(self, *, cluster: ClusterMap, hash_slot: int, **options: Any) -> None:
        self._cluster = cluster
        self._hash_slot = hash_slot
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = self._cluster.primary_of(self._hash_slot)
        return super()._connect()  # type: ignore[misc]

    def disconnect(self, *args: Any, **kwargs: Any) -> None:
        # Whatever the reason (a server may hang, and still take connections), another may have the hash slot by now.
        self._cluster.forget()
        super().disconnect(*args, **kwargs)  # type: ignore[misc]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except (AskError, ReadOnlyError) as error:  # a MovedError is an AskError
            self.disconnect()
            raise RedisConnectionError(
                f"hash slot {self._hash_slot} of the cluster is elsewhere now: {error}"
            ) from error


class _SlotConnection(_SlotMixin, Connection):
    pass


class _SlotSSLConnection(_SlotMixin, SSLConnection):
    pass
