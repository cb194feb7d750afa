"""Redis Cluster: where a slot is. Used by `RedisClient` alone.

Keys of the run and of its parameters go through redis-py's `RedisCluster`, which finds the server of each key. A shard
of the replay is one slot, so its commands go to one server on ordinary connections, as they would without a cluster
(scripts that are not waited for, blocking reads, raw ranges); these ask the map where their slot is when they connect.
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

#: Options of a connection that `RedisCluster` sets itself, or that belong to one server.
_OF_ONE_SERVER = frozenset({"host", "port", "db", "path"})


class ClusterMap:
    """The servers of a cluster and their slots, as last asked for. Thread-safe; the constructor does not connect.

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

    @property
    def redis(self) -> Any:
        """redis-py's client of the whole cluster.

        Raises:
            redis.exceptions.ConnectionError: no server answers.
        """
        with self._lock:
            if self._redis is None:
                startup = [ClusterNode(host, port) for host, port in self._nodes]  # type: ignore[no-untyped-call]
                try:
                    self._redis = _Cluster(startup_nodes=startup, require_full_coverage=False, **self._options)
                except RedisClusterException as error:
                    raise RedisConnectionError(f"no server of the cluster answers: {error}") from error
            return self._redis

    def primary_of(self, slot: int) -> tuple[str, int]:
        """Host and port of the server that has a slot.

        Raises:
            redis.exceptions.ConnectionError: no server answers, or none has the slot.
        """
        manager = self.redis.nodes_manager
        try:
            if self._is_stale:
                self._is_stale = False
                manager.initialize()
            node = manager.get_node_from_slot(slot)
        except RedisClusterException as error:
            self._is_stale = True
            raise RedisConnectionError(f"no server of the cluster has slot {slot}: {error}") from error
        return str(node.host), int(node.port)

    def forget(self) -> None:
        """Ask again before the next answer: a server did not answer, or does not have what it had."""
        self._is_stale = True

    def close(self) -> None:
        """Close all connections; the next use connects anew."""
        with self._lock:
            if self._redis is not None:
                self._redis.close()
                self._redis = None


def slot_pool(
    cluster: ClusterMap, slot: int, connection_class: type[Connection], options: Mapping[str, Any]
) -> ConnectionPool:
    """Connections to the server that has a slot, wherever it moves."""
    managed = _SlotSSLConnection if issubclass(connection_class, SSLConnection) else _SlotConnection
    return redis.ConnectionPool(connection_class=managed, cluster=cluster, slot=slot, **options)


class _Cluster(RedisCluster):
    """`RedisCluster` whose own exceptions, of another family than all others, say what they are: no connection."""

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call]
        except RedisClusterException as error:
            raise RedisConnectionError(str(error)) from error


class _SlotMixin:
    """A connection that finds out where to connect to, and breaks when its server no longer has the slot."""

    host: str
    port: int

    def __init__(self, *, cluster: ClusterMap, slot: int, **options: Any) -> None:
        self._cluster = cluster
        self._slot = slot
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = self._cluster.primary_of(self._slot)
        try:
            return super()._connect()  # type: ignore[misc]
        except OSError:
            self._cluster.forget()
            raise

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except (AskError, ReadOnlyError) as error:  # a MovedError is an AskError
            self._cluster.forget()
            self.disconnect()  # type: ignore[attr-defined]
            raise RedisConnectionError(f"slot {self._slot} of the cluster is elsewhere now: {error}") from error


class _SlotConnection(_SlotMixin, Connection):
    pass


class _SlotSSLConnection(_SlotMixin, SSLConnection):
    pass
