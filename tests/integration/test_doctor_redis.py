"""Planted faults of real Redis servers, each found by its name; and a server as a run starts it, in which none is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.plugins.doctor.examination import Examination
from surreal.plugins.doctor.finding import Finding, Severity
from surreal.plugins.doctor.server import clock_of, latency, limits, memory, persistence, reachable, rights
from surreal.plugins.doctor.subject import Subject
from tests.ports import claim_port
from tests.servers import RedisProcess

MB = 1 << 20
Start = Callable[..., RedisProcess]


def found(findings: Iterable[Finding]) -> list[str]:
    return [finding.fault for finding in findings if finding.severity is not Severity.OK]


def test_nothing_is_found_in_a_server_as_a_run_starts_it() -> None:
    with EmbeddedRedis(maxmemory_bytes=64 * MB) as server:
        examination = Examination(Subject("a server", address=server.address), ["redis", "clocks"])
        findings = list(examination.run())
        with RedisClient(server.address) as client:
            assert not list(client.scan("*"))
    # How quick a round trip is, is the machine's business.
    assert [fault for fault in found(findings) if not fault.startswith("redis-latency")] == []
    assert {finding.section for finding in findings} == {"redis", "clocks"}


def test_a_server_that_is_away_is_found_once_and_nothing_more_is_asked() -> None:
    examination = Examination(Subject("none", address=f"127.0.0.1:{claim_port()}"), ["redis", "clocks"])
    assert found(examination.run()) == ["redis-away"]


def test_a_wrong_password_is_found(start_redis: Start) -> None:
    server = start_redis(password="secret")
    (finding,) = reachable(RedisClient(server.address, password="wrong"))
    assert finding.fault == "redis-away" and "check user, password" in finding.text
    assert found(reachable(RedisClient(server.address, password="secret"))) == []


def test_a_policy_that_lets_redis_forget_is_found_and_what_it_has_forgotten(start_redis: Start) -> None:
    server = start_redis(maxmemory=4 * MB, options=("--maxmemory-policy", "allkeys-lru"))
    with RedisClient(server.address) as client:
        assert found(memory(client, None)) == ["redis-evicts"]
        for number in range(80):
            client.execute("SET", f"x{number}", b"x" * (100 << 10))
        faults = found(memory(client, None))
    assert faults[:2] == ["redis-evicts", "redis-has-evicted"]


def test_a_server_without_a_bound_or_with_one_that_is_too_small_is_found(start_redis: Start) -> None:
    server = start_redis()
    with RedisClient(server.address) as client:
        assert found(memory(client, None)) == ["redis-unbounded"]
        client.execute("CONFIG", "SET", "maxmemory", 64 * MB)
        assert found(memory(client, 64 * MB)) == ["redis-too-small"]
        assert found(memory(client, 32 * MB)) == []


def test_a_server_that_is_nearly_full_or_full_is_found(start_redis: Start) -> None:
    server = start_redis(maxmemory=64 * MB)
    with RedisClient(server.address) as client:
        for number in range(16):
            client.execute("SET", f"x{number}", b"x" * MB)
        used = int(client.redis.info("memory")["used_memory"])
        for share, fault in ((0.95, "redis-nearly-full"), (1.01, "redis-full")):
            client.execute("CONFIG", "SET", "maxmemory", int(used / share))
            assert found(memory(client, None)) == [fault]


def test_a_replica_is_found(start_redis: Start) -> None:
    primary, replica = start_redis(port=0), start_redis(port=0)
    with RedisClient(replica.address) as client:
        client.execute("REPLICAOF", "127.0.0.1", primary.port or 0)
        assert found(reachable(client)) == ["redis-read-only"]


def test_snapshots_and_a_disk_at_each_write_are_found(start_redis: Start) -> None:
    server = start_redis(appendonly=True)
    with RedisClient(server.address) as client:
        client.execute("CONFIG", "SET", "save", "3600 1")
        assert found(persistence(client)) == ["redis-snapshots", "redis-fsync-always"]


def test_a_snapshot_that_failed_and_stops_all_writes_is_found(start_redis: Start) -> None:
    server = start_redis()
    with RedisClient(server.address) as client:
        client.execute("CONFIG", "SET", "save", "3600 1")
        (server.socket_path.parent / "dump.rdb").mkdir()  # in the place of the file
        client.execute("BGSAVE")
        deadline_s = time.monotonic() + 20.0
        while client.redis.info("persistence")["rdb_last_bgsave_status"] != "err":
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert found(persistence(client)) == ["redis-cannot-save", "redis-snapshots"]


def test_limits_that_cut_large_replies_or_values_and_few_connections_are_found(start_redis: Start) -> None:
    server = start_redis()
    with RedisClient(server.address) as client:
        client.execute("CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 1mb 10")
        client.execute("CONFIG", "SET", "proto-max-bulk-len", 2 * MB)
        assert found(limits(client)) == ["redis-reply-limit", "redis-value-limit"]
        client.execute("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0")
        client.execute("CONFIG", "SET", "proto-max-bulk-len", 512 * MB)
        client.execute("CONFIG", "SET", "maxclients", 1)
        assert found(limits(client)) == ["redis-connections"]


def test_a_user_who_may_not_use_a_command_a_key_or_a_channel_is_found(start_redis: Start, redis_binary: str) -> None:
    server = start_redis(binary=redis_binary)
    with RedisClient(server.address) as admin:

        def user(name: str, *rules: str) -> list[Finding]:
            admin.execute("ACL", "SETUSER", name, "on", ">word", "resetchannels", *rules)
            with RedisClient(server.address, username=name, password="word") as client:
                return list(rights(client))

        (finding,) = user("a", "~surreal:*", "&surreal:*", "+@all", "-xadd", "-evalsha")
        assert finding.fault == "redis-rights" and "may not use XADD, EVALSHA" in finding.text
        assert "keys surreal:*" in user("b", "~other:*", "&surreal:*", "+@all")[0].text
        assert "channels surreal:*, SUBSCRIBE" in user("c", "~surreal:*", "+@all")[0].text
        # What the doctor recommends is enough, though such a user may not ask for the server's settings.
        recommended = finding.remedy.replace("'", "").partition("resetchannels ")[2].split()
        assert found(user("d", *recommended)) == []
        with RedisClient(server.address, username="d", password="word") as client:
            for check in (reachable, limits, persistence, partial(memory, replay_bytes=None)):
                assert set(found(check(client))) <= {"redis-unbounded"}
        assert not list(admin.scan("*"))


def test_a_slow_way_to_redis_is_found(redis_server: RedisProcess) -> None:
    class Clock:
        def __init__(self, step_s: float) -> None:
            self.step_s, self.now_s = step_s, 0.0

        def __call__(self) -> float:
            self.now_s += self.step_s
            return self.now_s

    with RedisClient(redis_server.address) as client:
        for step_s, faults in ((0.05, ["redis-latency"]), (0.01, ["redis-latency-some"]), (0.0001, [])):
            assert found(latency(client, tries=5, clock=Clock(step_s))) == faults


@pytest.mark.parametrize(
    ("skew_s", "faults"), [(120.0, ["clock-skew"]), (-120.0, ["clock-skew"]), (2.5, ["clock-skew-some"]), (0.0, [])]
)
def test_a_clock_that_is_wrong_is_found(redis_server: RedisProcess, skew_s: float, faults: list[str]) -> None:
    with RedisClient(redis_server.address) as client:
        findings = list(clock_of(client, clock=lambda: time.time() + skew_s))
    assert found(findings) == faults
    if skew_s:
        assert ("ahead of" if skew_s > 0 else "behind") in findings[0].text
