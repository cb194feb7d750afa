"""The map of a cluster, without a cluster."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from redis.connection import Connection

from surreal.distributed.connection import cluster as cluster_module
from surreal.distributed.connection.cluster import ClusterMap

DEADLINE_S = 20.0


class Cluster:
    """Asks for the map until it may answer."""

    def __init__(self, **_: Any) -> None:
        self.nodes_manager = self
        self.asks, self.may_answer = threading.Event(), threading.Event()
        self.host = "old"

    def initialize(self) -> None:
        self.asks.set()
        assert self.may_answer.wait(DEADLINE_S)
        self.host = "new"

    def get_node_from_slot(self, _: int) -> Any:
        return SimpleNamespace(host=self.host, port=7000)


def test_one_thread_asks_for_a_new_map_and_the_others_use_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Cluster()
    monkeypatch.setattr(cluster_module, "RedisCluster", lambda **_: made)
    found: list[str] = []
    servers = ClusterMap([("somewhere", 7000)], Connection, {})
    assert servers.primary_of(1) == ("old", 7000)
    servers.forget()
    thread = threading.Thread(target=lambda: found.append(servers.primary_of(1)[0]))
    thread.start()
    assert made.asks.wait(DEADLINE_S)
    assert servers.primary_of(2) == ("old", 7000), "without waiting"
    made.may_answer.set()
    thread.join(DEADLINE_S)
    assert found == ["new"]
    assert servers.primary_of(1) == ("new", 7000)
