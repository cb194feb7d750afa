"""A Redis server: version, role, memory, persistence, limits, latency and clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from surreal.base.errors import SurrealError
from surreal.base.system.process import largest_replay_bytes
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.doctor.frame.finding import Finding, judge, milliseconds, ok
from surreal.plugins.doctor.server import faults

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
        yield faults.AWAY.found(str(error).partition("; is it running")[0])
        return
    role = _info(client, "replication")
    if role.get("role") == "slave":
        yield faults.READ_ONLY.found(f"it is a replica of {role.get('master_host')}:{role.get('master_port')}")
    yield ok(f"Redis {'.'.join(map(str, version))} at {client.address}")


def memory(client: RedisClient, replay_bytes: int | None) -> Iterator[Finding]:
    """Check the memory, and the policy for a full server; `replay_bytes` of experience must fit, None if unknown."""
    info = _info(client, "memory")
    used, limit, policy = int(info["used_memory"]), int(info["maxmemory"]), str(info.get("maxmemory_policy", ""))
    if policy and policy != "noeviction":
        yield faults.EVICTS.found(f"maxmemory-policy is {policy}")
    if evicted := int(_info(client, "stats").get("evicted_keys", 0)):
        yield faults.EVICTED.found(f"{evicted:,} keys were evicted")
    if not limit:
        yield faults.UNBOUNDED.found(f"maxmemory is 0; {_mb(used)} are used")
        return
    share = used / limit
    said = f"{_mb(used)} of {_mb(limit)} are used"
    cases = (share > _FULL, faults.FULL), (share > _NEARLY_FULL, faults.NEARLY_FULL)
    yield judge(said, *cases, good=f"{said}, {policy}" if policy else said)
    if replay_bytes is not None and (room := largest_replay_bytes(limit)) < replay_bytes:
        said = f"maxmemory is {_mb(limit)}, which leaves {_mb(room)} to experience"
        yield faults.TOO_SMALL.found(f"{said}; replay.max_bytes is {_mb(replay_bytes)}")


def persistence(client: RedisClient) -> Iterator[Finding]:
    """Check which data survives a restart of the server, and the cost of it."""
    info = _info(client, "persistence")
    is_kept = bool(info.get("aof_enabled"))
    settings = _settings(client, "save", "appendfsync", "stop-writes-on-bgsave-error")
    has_snapshots = bool(settings.get("save"))
    is_stopped = info.get("rdb_last_bgsave_status") == "err" and settings.get("stop-writes-on-bgsave-error") != "no"
    if is_stopped and (has_snapshots or not settings):
        yield faults.CANNOT_SAVE.found("the last snapshot failed")
    elif is_kept and info.get("aof_last_write_status") == "err":
        yield faults.CANNOT_SAVE.found("the last write to the append-only file failed")
    if has_snapshots:
        yield faults.SNAPSHOTS.found(f"save is {settings['save']!r}")
    if is_kept and settings.get("appendfsync") == "always":
        yield faults.SLOW_APPENDS.found("appendfsync is always")
    what = "its append-only file keeps the replay" if is_kept else "the replay is empty"
    yield ok(f"after a restart of the server {what}")


def limits(client: RedisClient) -> Iterator[Finding]:
    """Check whether a run comes near one of the server's limits."""
    info = _info(client, "clients")
    settings = _settings(client, "maxclients", "client-output-buffer-limit", "proto-max-bulk-len")
    connected, most = int(info["connected_clients"]), int(info.get("maxclients") or settings.get("maxclients") or 0)
    if most and connected > _CONNECTIONS * most:
        yield faults.CONNECTIONS.found(f"{connected:,} of {most:,} connections are taken")
    buffers = settings.get("client-output-buffer-limit", "").split()
    normal = buffers[buffers.index("normal") + 1 :][:3] if "normal" in buffers else []
    if any(limit != "0" for limit in normal[:2]):
        yield faults.REPLY_LIMIT.found(f"client-output-buffer-limit is normal {' '.join(normal)}")
    largest = int(settings.get("proto-max-bulk-len") or _LEAST_VALUE_BYTES)
    if largest < _LEAST_VALUE_BYTES:
        yield faults.VALUE_LIMIT.found(f"proto-max-bulk-len is {_mb(largest)}")
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
    yield judge(said, (middle > _SLOW_S, faults.LATENCY), (middle > _SOMEWHAT_SLOW_S, faults.SOME_LATENCY))


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
    yield judge(said, (certain_s > SKEW_S, faults.CLOCK), (certain_s > SOME_SKEW_S, faults.SOME_CLOCK), good=good)


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
