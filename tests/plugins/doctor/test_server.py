"""The verdicts on a Redis server, on answers that are made by hand: good ones, and a bad one for each fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from surreal.base.errors import RedisUnavailableError
from surreal.plugins.doctor.finding import Finding, Severity
from surreal.plugins.doctor.server import clock_of, latency, limits, memory, persistence, reachable, rights

MIB = 1 << 20
INFO: dict[str, Any] = {
    "role": "master",
    "used_memory": 100 * MIB,
    "maxmemory": 1024 * MIB,
    "maxmemory_policy": "noeviction",
    "evicted_keys": 0,
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "connected_clients": 9,
    "maxclients": 10_000,
}
SETTINGS = {
    "save": "",
    "appendfsync": "everysec",
    "stop-writes-on-bgsave-error": "yes",
    "maxclients": "10000",
    "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    "proto-max-bulk-len": "536870912",
}


class Server:
    """A client of a server that answers with these values, and its own parts that the checks reach into."""

    address = "redis://cache:6379"

    def __init__(
        self,
        info: dict[str, Any] | None = None,
        settings: dict[str, str] | RedisError | None = None,
        *,
        refused: dict[str, str] | None = None,
        username: str | None = None,
        skew_s: float = 0.0,
        error: Exception | None = None,
    ) -> None:
        self._info = INFO | (info or {})
        self._settings = settings if isinstance(settings, RedisError) else SETTINGS | (settings or {})
        self._refused = refused or {}
        self._skew_s = skew_s
        self._error = error
        self.connection_kwargs = {"username": username}
        self.executed: list[tuple[Any, ...]] = []

    # RedisClient, and its `redis`
    @property
    def redis(self) -> Any:
        return self

    @property
    def connection_pool(self) -> Any:
        return self

    def info(self, section: str) -> dict[str, Any]:
        return self._info

    def check_server(self, timeout_s: float) -> tuple[int, ...]:
        if self._error is not None:
            raise self._error
        return (7, 2, 4)

    def server_time_s(self) -> float:
        return 1000.0 + self._skew_s

    def execute(self, *command: Any) -> Any:
        self.executed.append(command)
        name = str(command[0])
        if name in self._refused:
            raise NoPermissionError(self._refused[name])
        if command[:2] == ("ACL", "WHOAMI"):
            return b"worker"
        if command[:2] == ("CONFIG", "GET"):
            if isinstance(self._settings, RedisError):
                raise self._settings
            return [command[2], self._settings[command[2]].encode()]
        return None

    def pubsub(self) -> Server:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def subscribe(self, channel: str) -> None:
        if "SUBSCRIBE" in self._refused:
            raise NoPermissionError(self._refused["SUBSCRIBE"])

    def get_message(self, timeout: float) -> None:
        return None


class Ticks:
    """A clock that advances by a step with each look."""

    def __init__(self, step_s: float, now_s: float = 0.0) -> None:
        self._step_s, self._now_s = step_s, now_s

    def __call__(self) -> float:
        self._now_s += self._step_s
        return self._now_s


Check = Callable[[Any], Iterator[Finding]]
holds: Check = partial(memory, replay_bytes=512 * MIB)
quick: Check = partial(latency, clock=Ticks(0.0005))
exact: Check = partial(clock_of, clock=lambda: 1000.0)


def faults(findings: Iterable[Finding]) -> list[str]:
    return [finding.fault for finding in findings if finding.severity is not Severity.OK]


@pytest.mark.parametrize("check", [reachable, holds, persistence, limits, quick, exact, rights])
def test_a_good_server_has_no_fault(check: Check) -> None:
    findings = list(check(Server()))
    assert faults(findings) == []
    assert len(findings) == 1


@pytest.mark.parametrize("check", [persistence, limits])
def test_settings_that_nobody_may_read_are_not_held_against_a_server(check: Check) -> None:
    assert faults(check(Server(settings=ResponseError("unknown command")))) == []


SNAPSHOT = {"save": "3600 1"}


@pytest.mark.parametrize(
    ("check", "server", "fault", "text"),
    [
        (reachable, Server(error=RedisUnavailableError("no answer; is it running")), "redis-away", "no answer"),
        (
            reachable,
            Server({"role": "slave", "master_host": "db", "master_port": 6379}),
            "redis-read-only",
            "a replica of db:6379",
        ),
        (holds, Server({"maxmemory_policy": "allkeys-lru"}), "redis-evicts", "allkeys-lru"),
        (holds, Server({"evicted_keys": 1234}), "redis-has-evicted", "1,234 keys"),
        (holds, Server({"maxmemory": 0}), "redis-unbounded", "100 MiB are used"),
        (holds, Server({"used_memory": 950 * MIB}), "redis-nearly-full", "950 MiB of 1,024 MiB"),
        (holds, Server({"used_memory": 1020 * MIB}), "redis-full", "1,020 MiB of 1,024 MiB"),
        (holds, Server({"maxmemory": 300 * MIB}), "redis-too-small", "replay.max_bytes is 512 MiB"),
        (persistence, Server(settings=SNAPSHOT), "redis-snapshots", "save is '3600 1'"),
        (persistence, Server({"aof_last_write_status": "err"}), "redis-cannot-save", "append-only file failed"),
        (persistence, Server(settings={"appendfsync": "always"}), "redis-fsync-always", "always"),
        (limits, Server({"connected_clients": 9500}), "redis-connections", "9,500 of 10,000"),
        (
            limits,
            Server(settings={"client-output-buffer-limit": "normal 1048576 0 0"}),
            "redis-reply-limit",
            "normal 1048576 0 0",
        ),
        (limits, Server(settings={"proto-max-bulk-len": "1048576"}), "redis-value-limit", "1.0 MiB"),
        (partial(latency, clock=Ticks(0.030)), Server(), "redis-latency", "takes 30 ms"),
        (partial(latency, clock=Ticks(0.004)), Server(), "redis-latency-some", "takes 4 ms"),
        (exact, Server(skew_s=-9.0), "clock-skew", "9 s ahead of Redis"),
        (exact, Server(skew_s=2.0), "clock-skew-some", "2 s behind Redis"),
        (rights, Server(refused={"XADD": "this user has no permissions to run the command"}), "redis-rights", "XADD"),
        (rights, Server(refused={"SET": "no permissions to access one of the keys"}), "redis-rights", "keys surreal:*"),
        (rights, Server(refused={"SUBSCRIBE": "one of the channels"}), "redis-rights", "SUBSCRIBE"),
    ],
)
def test_a_fault_is_found_and_no_other(check: Check, server: Server, fault: str, text: str) -> None:
    findings = [finding for finding in check(server) if finding.severity is not Severity.OK]
    assert [finding.fault for finding in findings] == [fault]
    assert text in findings[0].text
    assert findings[0].remedy


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (SNAPSHOT, ["redis-cannot-save", "redis-snapshots"]),  # writes are refused until it works again
        ({**SNAPSHOT, "stop-writes-on-bgsave-error": "no"}, ["redis-snapshots"]),
        ({}, []),  # it makes none any longer
    ],
)
def test_a_snapshot_that_failed_matters_as_long_as_it_stops_writes(settings: dict[str, str], found: list[str]) -> None:
    assert faults(persistence(Server({"rdb_last_bgsave_status": "err"}, settings))) == found


def test_a_slow_answer_is_not_taken_for_a_wrong_clock() -> None:
    server = Server(skew_s=3.0)
    assert faults(clock_of(server, clock=Ticks(6.0, now_s=990.0))) == []  # type: ignore[arg-type]


def test_the_user_is_named_in_the_remedy_and_nothing_is_left() -> None:
    server = Server(refused={"XADD": "no permissions to run the command"})
    (finding,) = rights(server)  # type: ignore[arg-type]
    assert finding.text == "user worker may not use XADD"
    assert "ACL SETUSER worker " in finding.remedy
    written = {command[1] for command in server.executed if command[0] in ("SET", "HSET", "RPUSH")}
    removed = {key for command in server.executed if command[0] in ("DEL", "UNLINK") for key in command[1:]}
    assert written <= removed


@pytest.mark.parametrize("name", ["learner", "training.agent"])
def test_users_that_surreal_makes_have_the_rights_of_their_role_only(name: str) -> None:
    server = Server(username=name)
    assert faults(rights(server)) == []  # type: ignore[arg-type]
    assert not server.executed
