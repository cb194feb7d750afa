"""The map of a Redis Cluster: which server has a hash slot. Used by `RedisClient` and its connections.

The keys of a shard are in one hash slot, and so are all other keys of a run. So a client needs one server at a time,
and uses ordinary connections, as without a cluster (pipelines, blocking reads, calls that are not waited for, raw
ranges). A connection asks the map when it connects, and breaks when its hash slot has moved. The map is that of
redis-py's `RedisCluster`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException

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
        """Return host and port of the server that has a hash slot.

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
        """Return clients of all primaries.

        Raises:
            redis.exceptions.ConnectionError: no server answers.
        """
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
