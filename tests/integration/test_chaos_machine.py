"""Failover, memory limits, clock and disk of `surreal chaos`, on real servers and processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from surreal.base.errors import ConfigError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.files import find_redis_server
from surreal.plugins.chaos.disturbances import servers as module
from surreal.plugins.chaos.disturbances.failover import Failover, ReplicatedRedis
from surreal.plugins.chaos.disturbances.processes import Kind, NotDoneError
from surreal.plugins.chaos.disturbances.servers import JUMP_S, SYNC_MS, ClockOrDisk, Machine, Shrink

needs_machine = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="the library needs Linux and a C compiler"
)


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, f"timed out waiting for {what}"
        time.sleep(0.02)


def begin(disturbance: Failover) -> bool:
    """Begin a failover, unless the replica does not follow yet."""
    try:
        disturbance.begin()
    except NotDoneError:
        return False
    return True


def test_a_failover_loses_what_came_last_and_clients_keep_their_address(tmp_path: Path) -> None:
    with ReplicatedRedis(tmp_path, maxmemory_bytes=32 << 20) as servers, RedisClient(servers.address) as client:
        had: list[Any] = []
        for number in range(2):  # the new replica takes over, too
            failover = Failover("Redis", servers, lambda replica: had.append(replica.redis.get("early")))
            client.execute("SET", "early", number)
            wait_for(lambda: client.execute("WAIT", 1, 100) == 1 and begin(failover), "the replica")  # noqa: B023
            client.execute("SET", "late", number)
            before = servers.pid
            failover.end()
            failover.end()
            assert servers.pid != before
            assert client.attempt(lambda: client.redis.get("early"), what="read") == str(number).encode()
            assert client.execute("GET", "late") is None
        assert had == [b"0", b"1"]
        servers.kill()
        servers.start()
        assert client.attempt(lambda: client.redis.get("early"), what="read") == b"1"


def test_a_shrunk_redis_takes_nothing_until_its_limit_is_back(start_redis: Callable[..., Any]) -> None:
    server = start_redis(maxmemory="64mb")
    with RedisClient(server.address) as client:
        shrink = Shrink("Redis", client)
        shrink.begin()
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.redis.set("key", "value")
        shrink.end()
        shrink.end()
        assert client.redis.set("key", "value")
        assert client.redis.config_get("maxmemory") == {"maxmemory": str(64 << 20)}


@needs_machine
def test_the_clock_of_redis_and_of_processes_jumps_and_comes_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    code = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **machine.environment},
    )
    server = EmbeddedRedis(maxmemory_bytes=32 << 20, program=machine.wrap(find_redis_server()))
    with process, server, RedisClient(server.address) as client:
        assert process.stdin is not None and process.stdout is not None

        def ahead() -> list[float]:
            """How far their clocks are ahead of this process's."""
            process.stdin.write(b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            wall, monotonic = map(float, process.stdout.readline().split())  # type: ignore[union-attr]
            return [wall - time.time(), client.server_time_s() - time.time(), monotonic - time.monotonic()]

        jump = ClockOrDisk(Kind.CLOCK, machine)
        assert ahead() == pytest.approx([0, 0, 0], abs=JUMP_S / 2)
        jump.begin()
        assert ahead() == pytest.approx([JUMP_S, JUMP_S, 0], abs=JUMP_S / 2)
        jump.end()
        assert ahead() == pytest.approx([0, 0, 0], abs=JUMP_S / 2)
        process.stdin.close()


@needs_machine
def test_a_slow_disk_delays_each_sync(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    server = EmbeddedRedis(
        maxmemory_bytes=32 << 20, appendonly_dir=tmp_path / "redis", program=machine.wrap(find_redis_server())
    )
    with server, RedisClient(server.address) as client:
        client.execute("CONFIG", "SET", "appendfsync", "always")
        slow = ClockOrDisk(Kind.DISK, machine)
        slow.begin()
        began_s = time.monotonic()
        client.execute("SET", "key", "value")
        assert time.monotonic() - began_s >= SYNC_MS / 1000
        slow.end()
        assert client.execute("GET", "key") == b"value"


def test_without_a_compiler_the_machine_is_not_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="--machine needs Linux and a C compiler; install one"):
        Machine(tmp_path)
