"""A Redis server: version, role, memory, persistence, limits, latency, clock, and the rights of this user."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

from redis.exceptions import NoPermissionError, RedisError

from surreal.base.errors import SurrealError
from surreal.base.system.process import largest_replay_bytes
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.rights import USERS
from surreal.plugins.doctor.finding import FAULTS, Finding, fault, judge, milliseconds, ok

_TIMEOUT_S = 3.0
_FULL, _NEARLY_FULL = 0.99, 0.92
_CONNECTIONS = 0.9
_LEAST_VALUE_BYTES = 64 << 20
_SLOW_S, _SOMEWHAT_SLOW_S = 0.020, 0.003
_PAYLOAD = b"\0" * (1 << 20)
SKEW_S, SOME_SKEW_S = 5.0, 1.0
_CLOCK_TRIES = 5


def reachable(client: RedisClient) -> Iterator[Finding]:
    """Check whether the server answers, and is new enough."""
    try:
        version = client.check_server(timeout_s=_TIMEOUT_S)
    except SurrealError as error:
        yield fault("redis-away", str(error).partition("; is it running")[0])
        return
    role = _info(client, "replication")
    if role.get("role") == "slave":
        yield fault("redis-read-only", f"it is a replica of {role.get('master_host')}:{role.get('master_port')}")
    yield ok(f"Redis {'.'.join(map(str, version))} at {client.address}")


def memory(client: RedisClient, replay_bytes: int | None) -> Iterator[Finding]:
    """Check the memory, and the policy for a full server; `replay_bytes` of experience must fit, None if unknown."""
    info = _info(client, "memory")
    used, limit, policy = int(info["used_memory"]), int(info["maxmemory"]), str(info.get("maxmemory_policy", ""))
    if policy and policy != "noeviction":
        yield fault("redis-evicts", f"maxmemory-policy is {policy}")
    if evicted := int(_info(client, "stats").get("evicted_keys", 0)):
        yield fault("redis-has-evicted", f"{evicted:,} keys were evicted")
    if not limit:
        yield fault("redis-unbounded", f"maxmemory is 0; {_mb(used)} are used")
        return
    share = used / limit
    said = f"{_mb(used)} of {_mb(limit)} are used"
    cases = (share > _FULL, "redis-full"), (share > _NEARLY_FULL, "redis-nearly-full")
    yield judge(said, *cases, good=f"{said}, {policy}" if policy else said)
    if replay_bytes is not None and (room := largest_replay_bytes(limit)) < replay_bytes:
        said = f"maxmemory is {_mb(limit)}, which leaves {_mb(room)} to experience"
        yield fault("redis-too-small", f"{said}; replay.max_bytes is {_mb(replay_bytes)}")


def persistence(client: RedisClient) -> Iterator[Finding]:
    """Check which data survives a restart of the server, and the cost of it."""
    info = _info(client, "persistence")
    is_kept = bool(info.get("aof_enabled"))
    settings = _settings(client, "save", "appendfsync", "stop-writes-on-bgsave-error")
    has_snapshots = bool(settings.get("save"))
    is_stopped = info.get("rdb_last_bgsave_status") == "err" and settings.get("stop-writes-on-bgsave-error") != "no"
    if is_stopped and (has_snapshots or not settings):
        yield fault("redis-cannot-save", "the last snapshot failed")
    elif is_kept and info.get("aof_last_write_status") == "err":
        yield fault("redis-cannot-save", "the last write to the append-only file failed")
    if has_snapshots:
        yield fault("redis-snapshots", f"save is {settings['save']!r}")
    if is_kept and settings.get("appendfsync") == "always":
        yield fault("redis-fsync-always", "appendfsync is always")
    what = "its append-only file keeps the replay" if is_kept else "the replay is empty"
    yield ok(f"after a restart of the server {what}")


def limits(client: RedisClient) -> Iterator[Finding]:
    """Check whether a run comes near one of the server's limits."""
    info = _info(client, "clients")
    settings = _settings(client, "maxclients", "client-output-buffer-limit", "proto-max-bulk-len")
    connected, most = int(info["connected_clients"]), int(info.get("maxclients") or settings.get("maxclients") or 0)
    if most and connected > _CONNECTIONS * most:
        yield fault("redis-connections", f"{connected:,} of {most:,} connections are taken")
    buffers = settings.get("client-output-buffer-limit", "").split()
    normal = buffers[buffers.index("normal") + 1 :][:3] if "normal" in buffers else []
    if any(limit != "0" for limit in normal[:2]):
        yield fault("redis-reply-limit", f"client-output-buffer-limit is normal {' '.join(normal)}")
    largest = int(settings.get("proto-max-bulk-len") or _LEAST_VALUE_BYTES)
    if largest < _LEAST_VALUE_BYTES:
        yield fault("redis-value-limit", f"proto-max-bulk-len is {_mb(largest)}")
    if most:
        yield ok(f"{connected:,} of {most:,} connections are taken")


def latency(
    client: RedisClient, *, tries: int = 50, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Finding]:
    """Measure the median round trip of some tries, and the throughput; nothing is written."""

    def measure(*command: str | bytes) -> float:
        began_s = clock()
        client.execute(*command)
        return clock() - began_s

    measure("PING")  # connects
    trips = sorted(measure("PING") for _ in range(tries))
    middle, slow = trips[tries // 2], trips[-1 - tries // 20]
    said = f"a round trip takes {milliseconds(middle)}, the slowest {milliseconds(slow)}"
    with suppress(RedisError):  # a limit of the server, which `limits` reports
        there_and_back_s = min(measure("ECHO", _PAYLOAD) for _ in range(3))
        said += f"; {2 * len(_PAYLOAD) / max(there_and_back_s, 1e-9) / 2**20:,.0f} MiB/s go through"
    yield judge(said, (middle > _SLOW_S, "redis-latency"), (middle > _SOMEWHAT_SLOW_S, "redis-latency-some"))


def clock_of(client: RedisClient, *, clock: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Compare this machine's clock with the server's, by the quickest of some answers."""
    offsets = []
    for _ in range(_CLOCK_TRIES):
        before_s = clock()
        server_s = client.server_time_s()
        after_s = clock()
        offsets.append((after_s - before_s, (before_s + after_s) / 2 - server_s))
    trip_s, offset_s = min(offsets)
    # The time of the answer is indistinguishable from an offset.
    certain_s = max(0.0, abs(offset_s) - trip_s)
    said = f"this machine is {abs(offset_s):.3g} s {'ahead of' if offset_s > 0 else 'behind'} Redis at {client.address}"
    good = f"this machine and Redis at {client.address} agree to {max(abs(offset_s), trip_s) * 1000:,.3g} ms"
    yield judge(said, (certain_s > SKEW_S, "clock-skew"), (certain_s > SOME_SKEW_S, "clock-skew-some"), good=good)


def _info(client: RedisClient, section: str) -> Mapping[str, Any]:
    info: Mapping[str, Any] = client.redis.info(section)
    return info


def _settings(client: RedisClient, *names: str) -> dict[str, str]:
    """Return settings of the server; empty if this user may not read them, or the Redis is managed."""
    found: dict[str, str] = {}
    for name in names:
        try:
            name_and_value = client.execute("CONFIG", "GET", name)
        except RedisError:
            return {}
        if len(name_and_value) == 2:
            found[name] = name_and_value[1].decode(errors="replace")
    return found


def _mb(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size >= 10 << 20 else f"{size / 2**20:,.1f} MiB"


def rights(client: RedisClient) -> Iterator[Finding]:
    """Try all commands; their keys are removed, and would also expire."""
    name = str(client.redis.connection_pool.connection_kwargs.get("username") or "")
    if name.rpartition(".")[2] in {user.name for user in USERS}:
        yield ok(f"user {name} is one of `surreal redis --acl`, with the rights of its role only: none were tried")
        return
    keys = RedisClient(run=f"doctor-{secrets.token_hex(6)}").run_keys
    names = {"TEXT": keys.config, "TABLE": keys.processes, "STREAM": keys.log, "OTHER": keys.best, "QUEUE": keys.scores}
    names["CHANNEL"] = keys.stop
    _, *calls = files(__package__).joinpath("rights.txt").read_text(encoding="utf-8").splitlines()
    commands = [[names.get(word, word) for word in shlex.split(call)] for call in calls]
    lacking: dict[str, None] = {}
    for command in commands:
        try:
            client.execute(*command)
        except NoPermissionError as error:
            lacking[_kind(str(error), str(command[0]))] = None
        except RedisError:  # full, a replica, an older server: other checks report that
            continue
    if not _may_subscribe(client):
        lacking["SUBSCRIBE"] = None
    user = _user(client)
    if lacking:
        who = f"user {user}" if user else "this user"
        remedy = FAULTS["redis-rights"].remedy.replace("NAME", user) if user else ""
        yield fault("redis-rights", f"{who} may not use {', '.join(lacking)}", remedy)
    else:
        yield ok(f"{f'user {user}' if user else 'this user'} may use all {len(commands) + 1} commands that are needed")


def _may_subscribe(client: RedisClient) -> bool:
    channel = RedisClient(run="doctor").policy_keys().notice
    with client.redis.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        try:
            pubsub.subscribe(channel)
            pubsub.get_message(timeout=1.0)
        except NoPermissionError:
            return False
        except RedisError:
            return True
    return True


def _user(client: RedisClient) -> str:
    try:
        return str(client.execute("ACL", "WHOAMI").decode(errors="replace"))
    except RedisError:
        return ""


def _kind(message: str, command: str) -> str:
    """Return the missing right: the command, or its key or channel."""
    if "channel" in message:
        return "channels surreal:*"
    return "keys surreal:*" if "key" in message else command
